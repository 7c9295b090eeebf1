//! Every replacement policy of the list: random operations of several threads against a `BTreeMap`,
//! with pools of tens of frames and several times as much data. A policy that is added to the list
//! is tested at once. `WATTLE_ROUNDS` multiplies the length.

use crate::model::{options, plan, run_in};
use wattle::{Durability, Error, MIN_LOG_BYTES};
use wattle_tests::{
    harness::{Device, rounds},
    model::{Keys, Plan},
};

#[test]
fn every_policy_keeps_everything_in_a_tiny_pool() {
    for (i, info) in wattle::policies().iter().enumerate() {
        let options = options(52).policy(info.name);
        let logged = options.clone().log_bytes(MIN_LOG_BYTES).durability(Durability::None);
        for (clients, options) in [(1, options.log(false)), (4, logged)] {
            let seed = 2000 + 10 * i as u64 + u64::from(clients);
            let plan = Plan { large_every: 200, large: 9_000, ..plan(Keys::Random, 2500, clients) };
            run_in(&Device::memory(), options, plan, 2_500 * rounds(), 2, seed);
        }
    }
}

#[test]
fn every_policy_evicts_pages_and_several_evictors_share_it() {
    for (i, info) in wattle::policies().iter().enumerate() {
        let options = options(200).policy(info.name).evictors(3).log(false);
        run_in(
            &Device::memory(),
            options,
            plan(Keys::Random, 8000, 3),
            4_000 * rounds(),
            1,
            3000 + i as u64,
        );
        let engine = Device::memory()
            .open(crate::model::options(64).policy(info.name).log(false))
            .expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        for key in 0..20_000u32 {
            session.put(&tree, &key.to_be_bytes(), &[7; 100]).expect("put");
        }
        let stats = engine.stats();
        assert!(stats.evictions > 300, "{}: {stats:?}", info.name);
    }
}

#[test]
fn parameters_at_the_ends_of_their_ranges_do_no_harm_or_do_not_fit() {
    let mut refused = Vec::new();
    for (i, info) in wattle::policies().iter().enumerate() {
        for parameter in info.parameters {
            let (least, most) = parameter.range.ends();
            for value in [least, most] {
                let text = format!("{}:{}={value}", info.name, parameter.name);
                let options = options(48).policy(&text).log(false);
                match options.check() {
                    Ok(()) => {}
                    Err(Error::InvalidOption(why)) if why.contains("does not fit") => {
                        println!("{text}: {why}");
                        refused.push(text);
                        continue;
                    }
                    Err(error) => panic!("{text}: {error}"),
                }
                let plan = plan(Keys::Random, 1500, 2);
                run_in(&Device::memory(), options, plan, 400 * rounds(), 1, 4000 + i as u64);
            }
        }
    }
    assert!(refused.iter().any(|text| text.starts_with("s3-fifo:ghost")), "{refused:?}");
}
