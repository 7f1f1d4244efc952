// SPDX-License-Identifier: GPL-2.0

//! Traces of requests: lines of `time_us,op,offset,length`.

use crate::request::{Op, Request};
use crate::MAX_SIZE;
use eraid_tools::time::Nanos;
use std::io::{self, BufRead};

/// Reads a trace. All of it, so that a bad line is found before the first request goes out.
pub fn parse(lines: impl BufRead) -> io::Result<Vec<Request>> {
    let mut requests: Vec<Request> = Vec::new();
    for (index, line) in lines.lines().enumerate() {
        let line = line?;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let before = requests.last().map_or(Nanos(0), |request| request.due);
        let request = parse_line(line, before).map_err(|what| {
            let what = format!("line {}: {what}", index + 1);
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        requests.push(request);
    }
    if requests.is_empty() {
        let what = "no requests in it";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(requests)
}

/// Parses one line; `before` is when the request before it is due.
fn parse_line(line: &str, before: Nanos) -> Result<Request, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, op, offset, length] = fields[..] else {
        return Err(format!("{} fields instead of 4", fields.len()));
    };
    let number = |name: &str, text: &str| {
        let number = text.parse::<u64>();
        number.map_err(|_| format!("{name} '{text}' is not a number"))
    };
    let due = number("time", time)?
        .checked_mul(1000)
        .map(Nanos)
        .ok_or_else(|| format!("time {time} is too late"))?;
    if due < before {
        return Err(format!("time {time} is before that of the line above"));
    }
    let op = match op {
        "R" => Op::Read,
        "W" => Op::Write,
        _ => return Err(format!("op '{op}' is neither R nor W")),
    };
    let length = number("length", length)?;
    if length == 0 || length > MAX_SIZE {
        return Err(format!("length {length} is not between 1 and {MAX_SIZE}"));
    }
    Ok(Request {
        due,
        op,
        offset: number("offset", offset)?,
        // At most MAX_SIZE.
        length: length as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_requests() {
        let text =
            "# time_us,op,offset,length\n\n0,R,4096,8192\n 1500 , W , 0 , 512 \n1500,R,1,1\n";
        let requests = parse(text.as_bytes()).unwrap();
        assert_eq!(requests.len(), 3);
        assert_eq!(
            requests[1],
            Request {
                due: Nanos(1_500_000),
                op: Op::Write,
                offset: 0,
                length: 512
            }
        );
        assert_eq!((requests[0].op, requests[0].offset), (Op::Read, 4096));
    }

    #[test]
    fn bad_lines_are_named() {
        for (line, words) in [
            ("1,R,0", "3 fields instead of 4"),
            ("1,R,0,512,9", "5 fields instead of 4"),
            ("x,R,0,512", "time 'x' is not a number"),
            ("-1,R,0,512", "time '-1' is not a number"),
            ("1.5,R,0,512", "time '1.5' is not a number"),
            ("99999999999999999,R,0,512", "too late"),
            ("4,R,0,512", "before that of the line above"),
            ("9,r,0,512", "op 'r' is neither R nor W"),
            ("9,R,,512", "offset '' is not a number"),
            ("9,R,0,0", "length 0 is not between"),
            ("9,R,0,99999999999", "length 99999999999 is not between"),
        ] {
            let text = format!("5,R,0,512\n{line}\n");
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.starts_with("line 2: ") && error.contains(words),
                "{error}"
            );
        }
        assert!(parse("# nothing\n".as_bytes()).is_err());
        assert!(parse(&b"1,R,0,\xff\n"[..]).is_err());
    }

    #[test]
    fn requests_fit_the_device() {
        let request = |offset, length| Request {
            due: Nanos(0),
            op: Op::Read,
            offset,
            length,
        };
        assert!(request(4096, 4096).check(8192, 4096).is_ok());
        for bad in [
            request(4096, 8192),
            request(u64::MAX, 1),
            request(512, 4096),
            request(0, 512),
        ] {
            assert!(bad.check(8192, 4096).is_err(), "{bad:?}");
        }
    }
}
