// SPDX-License-Identifier: GPL-2.0

//! `eraid-parity`: recomputes what lies on the members of a RAID-5 or RAID-6, and compares.
//!
//! Stripe by stripe, byte by byte, with the scalar reference of the codes in `eraid_core::gf`
//! instead of the kernel's parity library: chunks of absent members are computed from the others,
//! P and Q from the data, and the data is what the array must return. So what the driver has
//! generated, modified and rebuilt is compared on the members, and what it decodes in its reads.
//! Where the chunks lie is taken from `eraid_core::geometry`.
//!
//! Nobody may write meanwhile. Stripes that were never written count too: members that were zeros
//! before have the right parity there.
//!
//! Exit status: 0 all is right, 1 some bytes are wrong, 2 the work could not be done.

mod stripe;

use clap::Parser;
use eraid_core::geometry::{Geometry, Level, Role};
use eraid_core::units::{Sectors, Slot, StripeNo};
use eraid_tools::device::{Access, Buffer, Device};
use eraid_tools::size::parse;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use stripe::{first_difference, Stripe};

/// How many wrong places are described.
const SHOWN: u64 = 8;

/// Compares an array and its members with parity computed anew.
#[derive(Parser, Debug)]
#[command(name = "eraid-parity", version)]
struct Args {
    /// The array.
    array: PathBuf,
    /// The members in the order of their slots; "-" for one that is absent.
    #[arg(required = true)]
    members: Vec<PathBuf>,
    /// 5 or 6.
    #[arg(long, value_parser = clap::value_parser!(u32).range(5..=6))]
    level: u32,
    /// Bytes in a chunk.
    #[arg(long, value_parser = parse)]
    chunk: u64,
    /// Bytes of data on each member.
    #[arg(long, value_parser = parse)]
    component: u64,
    /// Where the data starts on each member, in bytes.
    #[arg(long, value_parser = parse)]
    offset: u64,
    /// Only so many stripes, from the first on.
    #[arg(long)]
    stripes: Option<u64>,
}

/// An array that is compared.
struct Check {
    geometry: Geometry,
    array: Device,
    /// By slot.
    members: Vec<Option<Device>>,
    offset: u64,
    chunk: usize,
    wrong: u64,
}

impl Check {
    fn open(args: &Args) -> io::Result<Self> {
        let bad = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let level = match args.level {
            6 => Level::Raid6,
            _ => Level::Raid5,
        };
        let count = u8::try_from(args.members.len()).map_err(|_| bad("too many members".into()))?;
        let (chunk, component) = (
            Sectors::from_bytes(args.chunk),
            Sectors::from_bytes(args.component),
        );
        let geometry = Geometry::new(level, count, chunk, component)
            .map_err(|refusal| bad(refusal.to_string()))?;
        let array = Device::open(&args.array, Access::default())?;
        let capacity = geometry.capacity().bytes();
        if Some(array.size()?) != capacity {
            return Err(bad(format!(
                "the array has {} bytes, such members make {}",
                array.size()?,
                capacity.unwrap_or_default()
            )));
        }
        let open = |path: &PathBuf| match path.as_os_str() == "-" {
            true => Ok(None),
            false => Device::open(path, Access::default()).map(Some),
        };
        let members = args.members.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Check {
            geometry,
            array,
            members,
            offset: args.offset,
            chunk: args.chunk as usize,
            wrong: 0,
        })
    }

    /// Compares one stripe; `scratch` is a chunk long.
    fn stripe(&mut self, number: StripeNo, scratch: &mut Buffer) -> io::Result<()> {
        let stripe = self.read(number, scratch)?;
        let data = stripe.data().map_err(|_| {
            io::Error::other("too many members are absent for what is there to say anything")
        })?;
        for (parity, at) in stripe.wrong_parity(&data) {
            self.report(number, &format!("{parity:?}"), at);
        }
        for (column, right) in data.iter().enumerate() {
            let start = self.geometry.address(number, column as u8, 0);
            let start = start.ok_or_else(|| io::Error::other("no such column"))?;
            let got = scratch.get_mut(self.chunk);
            self.array.read(got, start.get() * 512)?;
            if let Some(at) = first_difference(got, right) {
                self.report(
                    number,
                    &format!("what the array has of column {column}"),
                    at,
                );
            }
        }
        Ok(())
    }

    /// What the members hold of a stripe.
    fn read(&self, number: StripeNo, scratch: &mut Buffer) -> io::Result<Stripe> {
        let start = self.offset + self.geometry.member_sector(number, 0).get() * 512;
        let columns = usize::from(self.geometry.data_columns());
        let mut stripe = Stripe {
            data: vec![None; columns],
            p: None,
            q: None,
            chunk: self.chunk,
        };
        for (slot, member) in self.members.iter().enumerate() {
            let Some(member) = member else { continue };
            let chunk = scratch.get_mut(self.chunk);
            member.read(chunk, start)?;
            let chunk = Some(chunk.to_vec());
            let slot = Slot::new(slot as u8).unwrap_or(Slot::FIRST);
            match self.geometry.role(number, slot) {
                Role::Data(column) => stripe.data[usize::from(column)] = chunk,
                Role::P => stripe.p = chunk,
                Role::Q => stripe.q = chunk,
                Role::Copy => {}
            }
        }
        Ok(stripe)
    }

    fn report(&mut self, number: StripeNo, what: &str, at: usize) {
        self.wrong += 1;
        if self.wrong <= SHOWN {
            println!("stripe {}: {what} is wrong from byte {at} on", number.get());
        }
    }
}

/// Compares; false when something is wrong.
fn run(args: &Args) -> io::Result<bool> {
    let mut check = Check::open(args)?;
    let all = check.geometry.stripes();
    let stripes = args.stripes.map_or(all, |some| some.min(all));
    let mut scratch = Buffer::new(check.chunk);
    for number in 0..stripes {
        check.stripe(StripeNo::new(number), &mut scratch)?;
    }
    println!(
        "parity={} stripes={stripes} absent={} wrong={}",
        if check.wrong == 0 { "ok" } else { "bad" },
        check.members.iter().filter(|m| m.is_none()).count(),
        check.wrong
    );
    Ok(check.wrong == 0)
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("eraid-parity: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eraid_core::gf;
    use eraid_tools::rng::Rng;
    use std::fs;
    use std::os::unix::fs::FileExt;

    const CHUNK: usize = 4096;
    const MEMBERS: usize = 4;
    const STRIPES: u64 = 9;
    const OFFSET: u64 = 8192;

    /// Files that hold a RAID-6, gone at the end.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str) -> Self {
            // Not in /tmp: a tmpfs may refuse direct I/O.
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("../target")
                .join(format!("parity-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let files = Files(folder);
            let mut array = Vec::new();
            let mut members = vec![vec![0; OFFSET as usize]; MEMBERS];
            let mut rng = Rng::new(&[7]);
            for stripe in 0..STRIPES as usize {
                let chunk = |rng: &mut Rng| (0..CHUNK).map(|_| rng.below(256) as u8).collect();
                let data: [Vec<u8>; MEMBERS - 2] = std::array::from_fn(|_| chunk(&mut rng));
                let (mut p, mut q) = (vec![0; CHUNK], vec![0; CHUNK]);
                gf::syndromes(data.iter().map(Vec::as_slice), &mut p, &mut q);
                array.extend(data.concat());
                // Parity starts on the last member and moves down; Q and the data are behind it.
                let first = MEMBERS - 1 - stripe % MEMBERS;
                for (behind, chunk) in [p, q].into_iter().chain(data).enumerate() {
                    members[(first + behind) % MEMBERS].extend(chunk);
                }
            }
            fs::write(files.path("array"), array).unwrap();
            for (slot, bytes) in members.iter().enumerate() {
                fs::write(files.path(&slot.to_string()), bytes).unwrap();
            }
            files
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn flip(&self, name: &str, at: u64) {
            let file = fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(self.path(name))
                .unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }

        /// Compares, without the members of these slots.
        fn run(&self, absent: &[usize]) -> io::Result<bool> {
            let member = |slot: usize| match absent.contains(&slot) {
                true => PathBuf::from("-"),
                false => self.path(&slot.to_string()),
            };
            run(&Args {
                array: self.path("array"),
                members: (0..MEMBERS).map(member).collect(),
                level: 6,
                chunk: CHUNK as u64,
                component: STRIPES * CHUNK as u64,
                offset: OFFSET,
                stripes: None,
            })
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_array_is_right_without_any_two_members() {
        let files = Files::new("right");
        assert!(files.run(&[]).unwrap());
        for a in 0..MEMBERS {
            for b in 0..a {
                assert!(files.run(&[a, b]).unwrap(), "{a} {b}");
            }
        }
        assert!(files.run(&[0, 1, 2]).is_err());
    }

    #[test]
    fn a_wrong_byte_is_noticed() {
        for name in ["array", "0", "1", "2", "3"] {
            let files = Files::new("wrong");
            files.flip(name, OFFSET + 2 * CHUNK as u64 + 17);
            assert!(!files.run(&[]).unwrap(), "{name}");
            // The one parity that is left notices too, unless it is about the absent member.
            assert_eq!(files.run(&[3]).unwrap(), name == "3", "{name}");
        }
    }
}
