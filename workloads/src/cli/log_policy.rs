//! `--log-policy`: the tuned figures of the log's threads, for experiments.

use std::str::FromStr;
use std::time::Duration;

use wattle::FlushPolicy;

/// Reads `key=value,key=value`; keys that are not named keep their default.
pub fn parse(text: &str) -> Result<FlushPolicy, String> {
    let mut policy = FlushPolicy::default();
    for pair in text.split(',') {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair} is no key=value"))?;
        match key {
            "least_delay_us" => policy.least_delay = Duration::from_micros(number(value)?),
            "busy_delay_us" => policy.busy_delay = Duration::from_micros(number(value)?),
            "unwaited_factor" => policy.unwaited_factor = number(value)?,
            "group_wait_us" => policy.group_wait = Duration::from_micros(number(value)?),
            "least_group" => policy.least_group = number(value)?,
            "reserve_zeroes" => policy.reserve_zeroes = number(value)?,
            _ => return Err(format!("the log has no figure {key}")),
        }
    }
    if policy.unwaited_factor == 0 {
        return Err("unwaited_factor is at least 1".to_owned());
    }
    Ok(policy)
}

fn number<T: FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{value} is no value of that figure"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_named_and_the_others_keep_their_default() {
        let policy = parse("busy_delay_us=70,reserve_zeroes=false,unwaited_factor=1").unwrap();
        let expected = FlushPolicy {
            busy_delay: Duration::from_micros(70),
            reserve_zeroes: false,
            unwaited_factor: 1,
            ..FlushPolicy::default()
        };
        assert_eq!(policy, expected);
        for text in ["", "busy_delay_us", "speed=9", "least_group=-1", "unwaited_factor=0"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
