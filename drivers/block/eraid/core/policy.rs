// SPDX-License-Identifier: GPL-2.0

//! The choice of a way to read, made anew for each request: which members are asked, and whether
//! their drives may retry.
//!
//! Each way is given its cost in microseconds: what the request itself is expected to take longer,
//! and what all others wait longer because members work for it. The cheapest way is taken. Before
//! that it is seen whether a wanted member is so late that its blocks are better computed from the
//! others. Documentation/design/read-policy.rst derives the formulas.
//!
//! It is for members of which any `data columns` many are enough; two parities count as one.

use crate::estimate::{quotient, Load, Snapshot};
use crate::geometry::{Band, Geometry};
use crate::queue::Class;
use crate::units::{Micros, Slot, SlotSet, MAX_SLOTS};

/// What the administrator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Each request the way that is expected to be best.
    Auto,
    /// All requests like this.
    Fixed(ReadMode),
}

/// A way to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// The wanted members, whose drives may retry.
    Normal,
    /// The wanted members, without retries; on an error the block is computed from the others.
    Failfast,
    /// All members, without retries, one command each for all rows that the request touches; done as
    /// soon as the wanted blocks are there or can be computed. The members that hold nothing that
    /// is wanted are asked in this class.
    Proactive(Class),
    /// As [`ReadMode::Proactive`] with ordinary commands, but without this member.
    LeaveOut {
        /// The member.
        slot: Slot,
        /// It is asked all the same, as an extra read: or nobody would see that it is well again.
        probe: bool,
    },
}

/// The choice for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The way to read.
    pub mode: ReadMode,
    /// What the request would take if nothing went wrong and it were alone.
    pub alone: Micros,
}

/// What a request wants of one member, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Want {
    /// Blocks that are wanted.
    blocks: u16,
    /// Rows from the first one that the request touches to the last one wanted of this member.
    reach: u16,
}

/// What a request wants of each member. Blocks are 4 KiB; rows are of blocks, too.
#[derive(Clone, Debug)]
pub struct Demand {
    wants: [Want; MAX_SLOTS],
    members: SlotSet,
    /// Members that have to be read to compute what one of them holds, and that one.
    group: u32,
    /// The first row that is touched, counted in the members' data.
    first_row: u64,
    /// Rows from the first to the last that is touched.
    rows: u32,
    /// Wanted blocks.
    blocks: u64,
    /// For each wanted block, the members that would have to be read besides, to compute it.
    missing: u64,
}

impl Demand {
    /// What the bands of a request want, all of them, in their order.
    pub fn new(geometry: &Geometry, bands: impl Iterator<Item = Band>) -> Self {
        let mut demand = Demand {
            wants: [Want::default(); MAX_SLOTS],
            members: SlotSet::EMPTY,
            group: u32::from(geometry.data_columns()) + 1,
            first_row: u64::MAX,
            rows: 0,
            blocks: 0,
            missing: 0,
        };
        bands.for_each(|band| demand.add(geometry, &band));
        demand
    }

    /// The members that hold wanted blocks.
    #[inline]
    pub const fn members(&self) -> SlotSet {
        self.members
    }

    /// Adds a band. Those of a request come in the order of rows, so the first one has the first row.
    fn add(&mut self, geometry: &Geometry, band: &Band) {
        let block = |row| geometry.member_sector(band.stripe, row).get() / SECTORS_PER_BLOCK;
        let (lo, hi) = (
            block(band.rows.lo),
            block(band.rows.hi.saturating_sub(1)) + 1,
        );
        self.first_row = self.first_row.min(lo);
        let count = (hi - lo) as u32;
        let reach = hi.saturating_sub(self.first_row) as u32;
        self.rows = self.rows.max(reach);
        for column in band.first..=band.last {
            let slot = geometry.slot_of_data(band.stripe, column);
            self.members.insert(slot);
            if let Some(want) = self.wants.get_mut(slot.index()) {
                want.blocks = want.blocks.saturating_add(count as u16);
                want.reach = reach.min(u32::from(u16::MAX)) as u16;
            }
        }
        let blocks = u64::from(count) * u64::from(band.columns());
        self.blocks += blocks;
        self.missing += blocks * u64::from(self.group.saturating_sub(u32::from(band.columns())));
    }

    #[inline]
    fn want(&self, slot: Slot) -> Want {
        self.wants.get(slot.index()).copied().unwrap_or_default()
    }
}

/// Chooses the way to read what `demand` says of `members`: those that can be read, each once.
///
/// `number` counts the requests of the array; it decides which ones probe.
pub fn choose(
    policy: Policy,
    demand: &Demand,
    members: impl Iterator<Item = (Slot, Snapshot)>,
    load: &Load,
    now: Micros,
    number: u64,
) -> Choice {
    let mut sums = Sums::default();
    for (slot, snapshot) in members {
        sums.add(slot, &snapshot, demand, load, now);
    }
    let costs = Costs::new(&sums, demand, load);
    let mode = match policy {
        // Nothing can be computed: only the drive's retries help.
        _ if sums.n < i64::from(demand.group) => ReadMode::Normal,
        Policy::Fixed(mode) => mode,
        Policy::Auto => match costs.too_late() {
            Some(slot) => ReadMode::LeaveOut {
                slot,
                probe: is_probe(number),
            },
            None => costs.cheapest(),
        },
    };
    Choice {
        mode,
        alone: Micros::new(costs.alone() as u64),
    }
}

/// One request in 32, without any rhythm that requests might have.
#[inline]
const fn is_probe(number: u64) -> bool {
    // Fibonacci hashing: 2^64 over the golden ratio.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0
}

/// Sectors in a block.
const SECTORS_PER_BLOCK: u64 = 8;

/// Time in which a block passes under the head, in µs: 293 a turn at 7200 rpm.
const BLOCK_US: i64 = 28;

/// Undelivered blocks from which on it is cheaper to read them again than to compute them.
const REREAD_FROM: i64 = 4;

/// Busy shares count up to this one of 1024: beyond it the formula says more than is known.
const BUSY_MAX: i64 = 976;

/// The standard deviation of a member's time, in parts of 1024 of the mean.
const DEVIATION: i64 = 358;

/// The mean of the longest of so many times, in standard deviations above the mean, in parts of 1024.
///
/// Expected maxima of so many normal variates; integrals by Simpson's rule over +-9 deviations. From
/// 2 on; none and one are not late by chance.
const LONGEST: [i16; MAX_SLOTS + 1] = [
    0, 0, 578, 867, 1054, 1191, 1298, 1385, 1458, 1521, 1576, 1625, 1668, 1708, 1744, 1778, 1808,
    1837, 1864, 1889, 1912, 1935, 1956, 1975, 1994, 2012, 2030, 2046, 2062, 2077, 2092, 2106, 2119,
    2132, 2145, 2157, 2169, 2180, 2191, 2202, 2213, 2223, 2233, 2242, 2252, 2261, 2270, 2278, 2287,
    2295, 2303, 2311, 2319, 2326, 2334, 2341, 2348, 2355, 2362, 2368, 2375, 2381, 2388, 2394, 2400,
];

/// The same of the second longest.
const SECOND: [i16; MAX_SLOTS + 1] = [
    0, 0, -578, 0, 304, 507, 657, 776, 873, 955, 1025, 1087, 1143, 1192, 1237, 1278, 1316, 1350,
    1383, 1413, 1441, 1468, 1493, 1517, 1539, 1561, 1581, 1601, 1619, 1637, 1654, 1671, 1687, 1702,
    1717, 1731, 1745, 1758, 1771, 1783, 1795, 1807, 1818, 1829, 1840, 1851, 1861, 1871, 1881, 1890,
    1899, 1908, 1917, 1926, 1934, 1943, 1951, 1959, 1967, 1974, 1982, 1989, 1996, 2003, 2010,
];

#[inline]
fn order(table: &[i16; MAX_SLOTS + 1], of: i64) -> i64 {
    let entry = usize::try_from(of).ok().and_then(|of| table.get(of));
    entry.map_or(0, |&entry| i64::from(entry))
}

/// A product of which one factor counts parts of 1024.
#[inline]
fn q10(a: i64, b: i64) -> i64 {
    a.saturating_mul(b) >> 10
}

/// A product of which one factor counts parts of 2^20.
#[inline]
fn q20(a: i64, b: i64) -> i64 {
    a.saturating_mul(b) >> 20
}

/// The probability that at least one of events happens of which `expected` are expected, both in
/// parts of 2^20: 1 - 1 / (1 + f + f^2 / 2), within 2% of 1 - e^-f up to f = 0.4 and never off
/// by more than 0.07.
#[inline]
fn at_least_one(expected: i64) -> i64 {
    if expected <= 0 {
        return 0;
    }
    let f = expected.min(1 << 25);
    let divisor = (1 << 20) + f + (f * f >> 21);
    (1 << 20) - quotient(1 << 40, divisor)
}

/// How much longer others wait for a member that is busy for this share, than for an idle one:
/// 1 / (1 - share), in parts of 1024.
#[inline]
fn crowding(busy: i64) -> i64 {
    quotient(1 << 20, 1024 - busy.clamp(0, BUSY_MAX))
}

/// Bad blocks that are expected, weighted with how much work on their members holds up others.
#[derive(Clone, Copy, Debug, Default)]
struct Crowded {
    /// With the members' crowding, in parts of 2^20.
    blocks: i64,
    /// The same, times what requests wait there, in µs.
    late: i64,
}

impl Crowded {
    #[inline]
    fn add(&mut self, blocks: i64, crowding: i64, wait: i64) {
        let crowded = q10(blocks, crowding);
        self.blocks += crowded;
        self.late += q20(crowded, wait);
    }
}

/// The wanted member that is expected to be the last.
#[derive(Clone, Copy, Debug)]
struct Last {
    slot: Slot,
    time: i64,
    service: i64,
    wait: i64,
    fail: i64,
}

/// What is summed up over the members. Times in µs, probabilities and expected bad blocks in parts of
/// 2^20, busy shares in parts of 1024.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Members, and those with wanted blocks.
    n: i64,
    wanted: i64,
    service: i64,
    /// Beyond the service.
    wait: i64,
    busy: i64,
    fail: i64,
    fail_max: i64,
    /// Bad blocks expected among the wanted ones, and the most of a member.
    bad: i64,
    bad_most: i64,
    /// The same up to the last wanted block of each member that has some; to the last row where a
    /// command that fails behind the wanted blocks does not tell that they came.
    bad_reach: i64,
    /// A member that may fail does not tell where.
    untold: bool,
    /// The most wanted blocks of a member.
    most: i64,
    /// Blocks that a command for all rows reads besides the wanted ones.
    extra_blocks: i64,
    crowded: Crowded,
    crowded_rows: Crowded,
    /// The longest wait in queues.
    queue_wanted: i64,
    queue_others: i64,
    /// The longest expected time, and the second longest.
    longest: i64,
    second: i64,
    last: Option<Last>,
}

impl Sums {
    #[inline]
    fn add(&mut self, slot: Slot, member: &Snapshot, demand: &Demand, load: &Load, now: Micros) {
        let want = demand.want(slot);
        let (blocks, rows) = (i64::from(want.blocks), i64::from(demand.rows));
        let service = i64::from(member.service_us);
        let wait = (i64::from(member.latency_us) - service).max(0);
        let busy = i64::from(member.busy_at(now));
        let fail = i64::from(member.fail_q20);
        self.n += 1;
        self.service += service;
        self.wait += wait;
        self.busy += busy;
        self.fail += fail;
        self.fail_max = self.fail_max.max(fail);
        // Half of the command that the device works on is done.
        let halves = (2 * i64::from(member.in_hand) - 1).max(0);
        let queue = halves.saturating_mul(service) / 2;
        let crowding = match fail {
            0 => 0,
            _ => crowding(busy),
        };
        self.crowded_rows.add(rows * fail, crowding, wait);
        let expected = i64::from(member.expected_us(load.retry_us, now));
        let errors = q20(blocks.max(1) * fail, i64::from(load.error_us));
        let time = (halves + 2).saturating_mul(expected + errors) / 2;
        self.second = self.second.max(time.min(self.longest));
        self.longest = self.longest.max(time);
        if blocks == 0 {
            self.queue_others = self.queue_others.max(queue);
            return;
        }
        self.wanted += 1;
        self.queue_wanted = self.queue_wanted.max(queue);
        self.bad += blocks * fail;
        self.bad_most = self.bad_most.max(blocks * fail);
        let untold = fail > 0 && !member.tells_place;
        self.untold |= untold;
        self.bad_reach += fail * if untold { rows } else { i64::from(want.reach) };
        self.most = self.most.max(blocks);
        self.extra_blocks += rows - blocks;
        self.crowded.add(blocks * fail, crowding, wait);
        if self.last.is_none_or(|last| last.time < time) {
            self.last = Some(Last {
                slot,
                time,
                service,
                wait,
                fail,
            });
        }
    }
}

/// What each way to read costs; all in µs but where it says so.
#[derive(Debug)]
struct Costs<'a> {
    sums: &'a Sums,
    /// Rows that are touched.
    rows: i64,
    /// Members with no wanted block that have to be read to compute one.
    extra: i64,
    retry: i64,
    last_resort: i64,
    error: i64,
    /// What requests wait for others.
    queueing: i64,
    /// 2^30 over the members' time for each request.
    per_share_q30: i64,
    /// Means over the members: time of a command, what it waits before, its standard deviation.
    service: i64,
    wait: i64,
    deviation: i64,
    /// Mean busy share, of 1024.
    busy: i64,
    /// The number of members that can be read and are enough for one to be computed, and that one.
    group: i64,
    /// Members to be read besides for each block that is to be computed, of 1024.
    missing_q10: i64,
}

impl<'a> Costs<'a> {
    fn new(sums: &'a Sums, demand: &Demand, load: &Load) -> Self {
        let n = sums.n.max(1);
        let group = i64::from(demand.group);
        let service = quotient(sums.service, n);
        let missing = (demand.missing << 10).checked_div(demand.blocks);
        Self {
            sums,
            rows: i64::from(demand.rows),
            extra: (group - sums.wanted).max(0),
            retry: i64::from(load.retry_us),
            last_resort: i64::from(load.last_resort_us),
            error: i64::from(load.error_us),
            queueing: i64::from(load.queueing_us),
            per_share_q30: quotient(1 << 30, i64::from(load.share_us.max(1))),
            service,
            wait: quotient(sums.wait, n),
            deviation: q10(service, DEVIATION),
            busy: quotient(sums.busy, n),
            group,
            missing_q10: missing.map_or(1 << 10, |missing| missing as i64),
        }
    }

    /// How much longer than the mean the longest of `k` times is.
    #[inline]
    fn spread(&self, k: i64) -> i64 {
        q10(self.deviation, order(&LONGEST, k))
    }

    /// What a request takes with nothing before it and no error.
    #[inline]
    fn alone(&self) -> i64 {
        self.service + self.spread(self.sums.wanted)
    }

    /// What part of a member's time for a request `time` is, of 1024.
    #[inline]
    fn share_q10(&self, time: i64) -> i64 {
        time.saturating_mul(self.per_share_q30) >> 20
    }

    /// What others wait longer when a member works `time` more: as many as come in the time until
    /// its queue is empty again, each for what it waits anyway and for half of `time`.
    ///
    /// `weight`, in parts of 1024, is how much a lump of work hurts more than the same spread out.
    #[inline]
    fn others(&self, time: i64, weight: i64) -> i64 {
        let each = self.queueing.saturating_add(self.lump(time, weight));
        q10(q10(self.share_q10(time), crowding(self.busy)), each)
    }

    /// The same for `time` at each bad block.
    #[inline]
    fn others_of_bad(&self, bad: &Crowded, time: i64, weight: i64) -> i64 {
        let waits = match self.wait {
            0 => q20(bad.blocks, self.queueing),
            wait => quotient(self.queueing.saturating_mul(bad.late), wait),
        };
        let each = waits.saturating_add(q20(bad.blocks, self.lump(time, weight)));
        q10(self.share_q10(time), each)
    }

    /// The part of [`Costs::others`] that grows with the lump: requests for many members are held
    /// up by the last of them.
    #[inline]
    fn lump(&self, time: i64, weight: i64) -> i64 {
        q10(weight, (self.sums.wanted + 1).saturating_mul(time)) / 4
    }

    /// The wanted member that is better left out, if there is one.
    fn too_late(&self) -> Option<Slot> {
        let sums = self.sums;
        let last = sums.last.as_ref()?;
        let others = sums.n - 1;
        let next = match last.time >= sums.longest {
            true => sums.second,
            false => sums.longest,
        };
        // The late one's own queue and load must not speak against leaving it out.
        let service = quotient(sums.service - last.service, others);
        let wait = quotient(sums.wait - last.wait, others);
        let queueing = self.queueing.min(wait + wait / 2);
        let read = q10(self.share_q10(service), queueing);
        let in_vain = at_least_one((sums.fail - last.fail) * self.rows);
        let limit = next + q20(in_vain, last.time) + self.extra * read + service / 2;
        (last.time > limit).then_some(last.slot)
    }

    /// The cheapest way to read.
    fn cheapest(&self) -> ReadMode {
        let rebuild = Rebuild::new(self);
        let mut best = (self.failfast(&rebuild), ReadMode::Failfast);
        let mut offer = |cost, mode| {
            if cost < best.0 {
                best = (cost, mode);
            }
        };
        offer(self.normal(&rebuild), ReadMode::Normal);
        offer(self.proactive(&rebuild), ReadMode::Proactive(Class::Extra));
        if self.extra > 0 {
            let cost = self.proactive_ordinary(&rebuild);
            offer(cost, ReadMode::Proactive(Class::Ordinary));
        }
        best.1
    }

    /// Retries on: the drive's turns, and others wait for them.
    fn normal(&self, rebuild: &Rebuild) -> i64 {
        let sums = self.sums;
        q20(rebuild.any.max(sums.bad_most), self.retry)
            + self.others_of_bad(&sums.crowded, self.retry, LUMP_OF_ERRORS)
    }

    /// Retries off, the wanted members only: a second step if a block is bad, and that may fail, too.
    fn failfast(&self, rebuild: &Rebuild) -> i64 {
        let sums = self.sums;
        let reads = match self.is_long() {
            true => q20(sums.bad, self.missing_q10 + 1024),
            false => q20(rebuild.any, self.missing_q10),
        };
        q20(rebuild.any, self.error + rebuild.second_step)
            + rebuild.both(self, sums.most)
            + self.others_of_bad(&sums.crowded, self.error, LUMP_OF_ERRORS)
            + q10(reads, rebuild.read)
    }

    /// All members, the others at low priority: they come if their drives are idle, or if they are
    /// needed after all.
    fn proactive(&self, rebuild: &Rebuild) -> i64 {
        let idle = 1024 - self.busy;
        let step = rebuild.second_step;
        let mut late = q10(step, self.busy) + q10(self.spread(self.extra), idle);
        late += q20((step - late).max(0), rebuild.two_in_a_row);
        let after = late + self.extra * rebuild.read + q10(self.error, self.busy);
        let taken = q10(self.share_q10(self.service / 2), self.service) * self.extra;
        let gain = match self.extra {
            0 => rebuild.gain,
            _ => q10(rebuild.gain, idle),
        };
        q20(rebuild.any_reach, after) + self.whole_rows(rebuild) + taken - gain
    }

    /// All members at ordinary priority.
    fn proactive_ordinary(&self, rebuild: &Rebuild) -> i64 {
        let step = q20(rebuild.second_step, rebuild.two_in_a_row);
        q20(rebuild.any_reach, self.spread(self.extra) + step)
            + self.whole_rows(rebuild)
            + self.extra * rebuild.read
            - rebuild.gain
    }

    /// What it costs to read all rows of each member, whatever the priority.
    fn whole_rows(&self, rebuild: &Rebuild) -> i64 {
        let sums = self.sums;
        let reads = match self.is_long() {
            true => {
                let in_vain = at_least_one(self.rows * quotient(sums.fail, sums.n));
                sums.bad + q20(sums.bad, in_vain) * self.extra
            }
            false => sums.bad_reach / 2,
        };
        q20(reads, rebuild.read)
            + self.others_of_bad(&sums.crowded_rows, self.error, LUMP_OF_ERRORS)
            + rebuild.both(self, self.rows)
            + self.others(BLOCK_US * sums.extra_blocks, 1024)
    }

    #[inline]
    fn is_long(&self) -> bool {
        self.sums.most > REREAD_FROM
    }
}

/// Weight of lumps of work that errors make, and of those that rebuilds make, in parts of 1024.
const LUMP_OF_ERRORS: i64 = 1024 * 2;
const LUMP_OF_READS: i64 = 1024 * 3 / 4;

/// What computing a block from other members costs; probabilities in parts of 2^20, times in µs.
#[derive(Debug)]
struct Rebuild {
    /// At least one wanted block is bad.
    any: i64,
    /// At least one block is bad up to the last wanted one of a member.
    any_reach: i64,
    /// Probability that another member fails in a row.
    other: i64,
    /// Another member fails in another row.
    two_in_a_row: i64,
    /// The reads that are sent when a block turned out to be bad.
    second_step: i64,
    /// What one of them costs others.
    read: i64,
    /// What it gains that the slowest member need not be waited for.
    gain: i64,
}

impl Rebuild {
    fn new(costs: &Costs<'_>) -> Self {
        let sums = costs.sums;
        let others_fail = sums.fail - sums.fail_max;
        let queue =
            sums.queue_others + costs.wait + q10(costs.wait, order(&LONGEST, costs.extra)) / 2;
        let faster = order(&LONGEST, sums.wanted) - order(&SECOND, costs.group);
        Self {
            any: at_least_one(sums.bad),
            any_reach: at_least_one(sums.bad_reach),
            other: others_fail,
            two_in_a_row: at_least_one(others_fail * (costs.rows - 1) / 2),
            second_step: queue / 2 + costs.service + costs.spread(costs.extra),
            read: costs.others(costs.service * 7 / 8, LUMP_OF_READS),
            gain: match sums.wanted {
                0 | 1 => 0,
                _ => q10(costs.deviation + costs.queueing * 3 / 8, faster),
            },
        }
    }

    /// What it costs when a block can be had neither way, and that blocks of a long run fail one after
    /// the other. A command for `rows` that fails and does not tell where loses all of them.
    fn both(&self, costs: &Costs<'_>, rows: i64) -> i64 {
        let sums = costs.sums;
        let rows = if sums.untold { rows } else { 1 };
        let lost = q20(sums.bad, at_least_one(self.other * rows));
        let own = (sums.queue_wanted + costs.wait) / 2 + costs.service + costs.last_resort;
        let busy = costs.others(costs.service + costs.last_resort, 1024);
        let again = match costs.is_long() {
            true => (sums.bad_most - (1 << 20)).max(0),
            false => 0,
        };
        q20(at_least_one(lost), own) + q20(lost, busy) + q20(again, costs.service + costs.wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Level;
    use crate::units::{Sector, Sectors};
    use proptest::prelude::*;

    const MS: u32 = 1000;

    const NOW: Micros = Micros(10_000_000);

    fn geometry(members: u8) -> Geometry {
        Geometry::new(Level::Raid5, members, Sectors(16), Sectors(1 << 20)).unwrap()
    }

    /// What a read of `kib` from `at` KiB on wants of six members with chunks of 8 KiB.
    fn demand(at: u64, kib: u64) -> Demand {
        let geometry = geometry(6);
        let bands = geometry.bands(Sector(at * 2), Sectors(kib * 2), u32::MAX);
        Demand::new(&geometry, bands)
    }

    /// A member that is idle and well.
    const WELL: Snapshot = Snapshot {
        service_us: 12 * MS,
        latency_us: 13 * MS,
        fail_q20: 0,
        tells_place: true,
        busy_q10: 200,
        measured: NOW,
        in_hand: 0,
        silent_since: Micros::ZERO,
    };

    const LOAD: Load = Load {
        retry_us: 42 * MS,
        last_resort_us: 42 * MS,
        error_us: 0,
        queueing_us: MS,
        share_us: 6 * 24 * MS,
    };

    fn chosen(policy: Policy, demand: &Demand, members: &[Snapshot], load: &Load) -> ReadMode {
        let members = members.iter().enumerate();
        let members = members.map(|(slot, now)| (Slot::new(slot as u8).unwrap(), *now));
        choose(policy, demand, members, load, NOW, 1).mode
    }

    fn auto(demand: &Demand, members: &[Snapshot], load: &Load) -> ReadMode {
        chosen(Policy::Auto, demand, members, load)
    }

    fn bad(percent: u32) -> Snapshot {
        Snapshot {
            fail_q20: (percent << 20) / 100,
            ..WELL
        }
    }

    #[test]
    fn demands_say_what_is_wanted_of_whom() {
        // Data of stripe 0 on members 0 to 4, of stripe 1 on 5, 0, 1, 2, 3.
        let small = demand(8, 8);
        assert_eq!(small.members().bits(), 0b10);
        assert_eq!((small.rows, small.blocks, small.missing), (2, 2, 10));
        assert_eq!(
            small.want(Slot::masked(1)),
            Want {
                blocks: 2,
                reach: 2
            }
        );
        assert_eq!(small.want(Slot::masked(0)), Want::default());
        // The last 4 KiB of member 4, and the first of member 5: rows 1 and 2.
        let across = demand(36, 8);
        assert_eq!(across.members().bits(), 0b11_0000);
        assert_eq!((across.rows, across.missing), (2, 10));
        assert_eq!(
            across.want(Slot::masked(4)),
            Want {
                blocks: 1,
                reach: 1
            }
        );
        assert_eq!(
            across.want(Slot::masked(5)),
            Want {
                blocks: 1,
                reach: 2
            }
        );
        let both = demand(0, 80);
        assert_eq!(both.members().len(), 6);
        assert_eq!((both.rows, both.blocks, both.missing), (4, 20, 20));
        assert_eq!(
            both.want(Slot::masked(4)),
            Want {
                blocks: 2,
                reach: 2
            }
        );
        assert_eq!(
            both.want(Slot::masked(0)),
            Want {
                blocks: 4,
                reach: 4
            }
        );
    }

    #[test]
    fn fixed_policies_are_kept_unless_nothing_can_be_computed() {
        let slow = Snapshot {
            service_us: 900 * MS,
            in_hand: 9,
            ..WELL
        };
        let members = [slow, WELL, WELL, WELL, WELL, WELL];
        for mode in [
            ReadMode::Normal,
            ReadMode::Failfast,
            ReadMode::Proactive(Class::Extra),
        ] {
            let policy = Policy::Fixed(mode);
            assert_eq!(chosen(policy, &demand(0, 24), &members, &LOAD), mode);
            let degraded = chosen(policy, &demand(0, 24), &members[1..], &LOAD);
            assert_eq!(degraded, ReadMode::Normal);
        }
        let degraded = auto(&demand(8, 24), &members[..5], &LOAD);
        assert_eq!(degraded, ReadMode::Normal);
    }

    #[test]
    fn well_members_are_read_without_retries() {
        for kib in [8, 24] {
            assert_eq!(auto(&demand(0, kib), &[WELL; 6], &LOAD), ReadMode::Failfast);
        }
        // All six hold something: one of them need not be waited for.
        let mode = auto(&demand(0, 80), &[WELL; 6], &LOAD);
        assert_eq!(mode, ReadMode::Proactive(Class::Extra));
    }

    #[test]
    fn retries_pay_where_peers_fail_as_well_and_they_are_cheap() {
        let load = |ms| Load {
            retry_us: ms * MS,
            last_resort_us: ms * MS,
            queueing_us: 20 * MS,
            ..LOAD
        };
        let all = [bad(10); 6];
        // By 1.9 of 22 ms in simulation.
        assert_eq!(auto(&demand(0, 8), &all, &load(25)), ReadMode::Normal);
        let mut one = [WELL; 6];
        one[0] = bad(10);
        assert_ne!(auto(&demand(0, 24), &one, &load(25)), ReadMode::Normal);
        // With few bad blocks, retries of five turns are dearer than a second step.
        let few = auto(&demand(0, 8), &[bad(2); 6], &load(42));
        assert_eq!(few, ReadMode::Failfast);
        // A block that is read the next time makes the last resort cheap.
        let again = Load {
            last_resort_us: 0,
            ..load(42)
        };
        assert_ne!(auto(&demand(0, 24), &all, &again), ReadMode::Normal);
        // Errors that stop the drive for long do not.
        let stall = Load {
            error_us: 200 * MS,
            ..load(42)
        };
        assert_eq!(auto(&demand(0, 24), &[bad(2); 6], &stall), ReadMode::Normal);
    }

    #[test]
    fn all_members_are_read_where_that_costs_little() {
        let five = demand(0, 40);
        let idle = auto(&five, &[bad(2); 6], &LOAD);
        assert!(matches!(idle, ReadMode::Proactive(_)), "{idle:?}");
        let loaded = Load {
            queueing_us: 100 * MS,
            share_us: 48 * MS,
            ..LOAD
        };
        let busy = Snapshot {
            busy_q10: 1000,
            latency_us: 90 * MS,
            in_hand: 8,
            ..bad(2)
        };
        let mode = auto(&demand(0, 8), &[busy; 6], &loaded);
        assert!(
            !matches!(mode, ReadMode::Proactive(_)),
            "five reads for one"
        );
    }

    #[test]
    fn late_members_are_left_out() {
        let late = |member: Snapshot, at: usize| {
            let mut members = [WELL; 6];
            members[at] = member;
            auto(&demand(0, 24), &members, &LOAD)
        };
        let out = |slot| ReadMode::LeaveOut {
            slot: Slot::new(slot).unwrap(),
            probe: false,
        };
        let slow = Snapshot {
            service_us: 120 * MS,
            latency_us: 121 * MS,
            ..WELL
        };
        assert_eq!(late(slow, 1), out(1));
        assert_eq!(late(slow, 4), ReadMode::Failfast, "nothing is wanted of it");
        let queue = Snapshot { in_hand: 6, ..WELL };
        assert_eq!(late(queue, 2), out(2));
        let hung = |ms: u64| Snapshot {
            in_hand: 1,
            silent_since: NOW.saturating_sub(Micros::new(ms * u64::from(MS))),
            ..WELL
        };
        assert_eq!(late(hung(30), 0), ReadMode::Failfast);
        assert_eq!(late(hung(150), 0), out(0));
        // All as late: nothing is won.
        assert_eq!(auto(&demand(0, 24), &[slow; 6], &LOAD), ReadMode::Failfast);
        // The others cannot be relied on.
        let mut members = [bad(30); 6];
        members[0] = Snapshot {
            service_us: 30 * MS,
            ..bad(30)
        };
        assert!(!matches!(
            auto(&demand(0, 24), &members, &LOAD),
            ReadMode::LeaveOut { .. }
        ));
    }

    #[test]
    fn one_in_32_probes_whatever_the_rhythm() {
        for step in [1, 2, 32, 64, 1000] {
            let probes = (0..32_000u64).filter(|n| is_probe(n * step)).count();
            assert!((900..1100).contains(&probes), "{step}: {probes}");
        }
    }

    #[test]
    fn probability_of_at_least_one() {
        for f in [0.001, 0.02, 0.1, 0.4, 1.0, 3.0, 20.0] {
            let expected = 1.0 - f64::exp(-f);
            let got = at_least_one((f * f64::from(1 << 20)) as i64) as f64 / f64::from(1 << 20);
            assert!((got - expected).abs() < 0.07, "{f}: {got}");
            assert!(f > 0.4 || (got / expected - 1.0).abs() < 0.02, "{f}: {got}");
        }
        assert_eq!((at_least_one(0), at_least_one(-5)), (0, 0));
        assert!(at_least_one(i64::MAX) < 1 << 20);
    }

    #[test]
    fn order_statistics_are_those_of_few() {
        // Of two, the mean of the longer one is 1 / sqrt(pi), of three 1.5 / sqrt(pi).
        assert_eq!([LONGEST[2], LONGEST[3]], [578, 867]);
        assert_eq!([SECOND[2], SECOND[3]], [-578, 0]);
        for n in 3..=MAX_SLOTS {
            assert!(LONGEST[n] > LONGEST[n - 1] && SECOND[n] > SECOND[n - 1]);
            // E of the second of n = n * E of the first of n - 1, less (n - 1) * that of n.
            let (n32, first) = (n as i32, i32::from(LONGEST[n - 1]));
            let second = n32 * first - (n32 - 1) * i32::from(LONGEST[n]);
            assert!(
                (second - i32::from(SECOND[n])).abs() <= n32,
                "{n}: {second}"
            );
        }
    }

    fn any_snapshot() -> impl Strategy<Value = Snapshot> {
        let times = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>());
        let fails = (0u32..=1 << 20, any::<bool>());
        (times, fails, 0u32..=1 << 10, any::<u32>()).prop_map(
            |((service_us, latency_us, measured, since), fails, busy_q10, in_hand)| Snapshot {
                service_us,
                latency_us,
                fail_q20: fails.0,
                tells_place: fails.1,
                busy_q10,
                measured: Micros(measured),
                in_hand,
                silent_since: Micros(since),
            },
        )
    }

    proptest! {
        /// Whatever the numbers, there is a choice, and one of those that are possible.
        #[test]
        fn nothing_overflows(
            members in prop::collection::vec(any_snapshot(), 0..=64),
            times in any::<[u32; 5]>(), at in 0u64..1000, kib in 1u64..=4096, now: u64, number: u64,
        ) {
            let geometry = geometry((members.len().max(3)) as u8);
            let kib = kib.min(geometry.capacity().get() / 2 - at);
            let bands = geometry.bands(Sector(at * 2), Sectors(kib * 2), u32::MAX);
            let demand = Demand::new(&geometry, bands);
            let [retry_us, last_resort_us, error_us, queueing_us, share_us] = times;
            let load = Load { retry_us, last_resort_us, error_us, queueing_us, share_us };
            let slots = members.iter().enumerate();
            let slots = slots.map(|(slot, now)| (Slot::new(slot as u8).unwrap(), *now));
            let choice = choose(Policy::Auto, &demand, slots, &load, Micros(now), number);
            if let ReadMode::LeaveOut { slot, .. } = choice.mode {
                prop_assert!(demand.members().contains(slot));
            }
        }
    }
}
