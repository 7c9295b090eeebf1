//! Names and parameters of all policies.

use super::*;

fn refusal(text: &str) -> String {
    Policy::parse(text, 1000).unwrap_err().to_string()
}

#[test]
fn every_policy_is_chosen_by_its_name_and_takes_its_own_defaults() {
    for (index, info) in policies().iter().enumerate() {
        assert!(policies()[..index].iter().all(|other| other.name != info.name), "{}", info.name);
        assert!(!info.summary.is_empty() && !info.source.is_empty(), "{}", info.name);
        let given: Vec<_> = (info.parameters.iter())
            .map(|parameter| format!("{}={}", parameter.name, parameter.default))
            .collect();
        for text in [info.name.to_string(), format!("{}:{}", info.name, given.join(","))] {
            let (policy, epochs) = Policy::parse(&text, 1000).unwrap();
            assert_eq!((policy.name(), policy.order().is_some()), (info.name, info.ordered));
            assert!(epochs > 0.0, "{text}");
        }
        assert!(info.to_string().contains(info.name));
    }
}

#[test]
fn parameters_change_a_policy() {
    let (Policy::Watt(watt), epochs) =
        Policy::parse("watt:epochs=64,write_weight=0", 1000).unwrap()
    else {
        panic!("not watt")
    };
    assert_eq!((watt.write_weight, epochs), (0.0, 64.0));
}

#[test]
fn unknown_policies_and_parameters_are_refused_with_those_that_are_known() {
    let message = refusal("astrology");
    assert!(policies().iter().all(|info| message.contains(info.name)), "{message}");
    for info in policies() {
        let message = refusal(&format!("{}:colour=1", info.name));
        let named = |parameter: &Parameter| {
            message.contains(parameter.name) && message.contains(&parameter.range.to_string())
        };
        assert!(message.contains("colour") && info.parameters.iter().all(named), "{message}");
        for parameter in info.parameters {
            for value in ["", "x", "nan", "inf", "-1", "1e300"] {
                let message = refusal(&format!("{}:{}={value}", info.name, parameter.name));
                assert!(message.contains(&parameter.range.to_string()), "{message}");
            }
        }
    }
    for bad in ["", "watt:epochs=0", "watt:epochs", "random:write_weight=1", "watt:x=1"] {
        let message = refusal(bad);
        assert!(message.contains("watt") || message.contains("epochs"), "{message}");
    }
}
