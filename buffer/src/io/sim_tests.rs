//! The simulated device keeps its promises: the same seed gives the same faults, each fault has its
//! documented effect, and a crash leaves only states that a power cut could leave.

use super::tests::{Frames, image, read, write_range};
use super::*;
use crate::{ids::PageId, page::PAGE_SIZE};
use proptest::prelude::*;
use std::{collections::BTreeSet, io, io::ErrorKind, sync::Arc, time::Duration};

fn write(storage: &dyn Storage, page: u64, version: u64) -> io::Result<()> {
    let image = image(page, version);
    let mut results = Vec::new();
    storage.write_pages(&[PageWrite { page: PageId(page), image: &image }], &mut results);
    results.remove(0)
}

fn device(plan: FaultPlan) -> SimStorage {
    let device = SimStorage::new(FaultPlan::new(plan.seed()));
    write_range(&device, 0..8, 1);
    Storage::sync(&device).expect("no faults yet");
    device.set_plan(plan);
    device
}

#[test]
fn scripted_faults_hit_the_operations_that_they_name() {
    let device = device(
        FaultPlan::new(1)
            .nth(Op::Write, 2, Fault::Error(ErrorKind::Other))
            .on_page(Op::Read, PageId(5), Fault::Error(ErrorKind::TimedOut))
            .nth(Op::Sync, 1, Fault::Error(ErrorKind::Other))
            .from(Op::Any, 12, Fault::Error(ErrorKind::BrokenPipe)),
    );
    write(&device, 0, 2).expect("the first");
    let error = write(&device, 1, 2).unwrap_err();
    assert!(error.to_string().contains("seed 1"), "{error}");
    write(&device, 1, 3).expect("the third");
    assert_eq!(read(&device, 5).err().expect("named").kind(), ErrorKind::TimedOut);
    assert!(read(&device, 4).is_ok());
    assert!(Storage::sync(&device).is_err());
    assert_eq!(device.unsynced_pages(), [PageId(0), PageId(1)]);
    Storage::sync(&device).expect("the second");
    for _ in 0..4 {
        read(&device, 0).expect("before operation 12");
    }
    for _ in 0..3 {
        assert_eq!(write(&device, 2, 2).unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(device.reserve(9).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
    assert_eq!(device.counters().faults, 9);
    device.heal();
    write(&device, 2, 2).expect("healed");
}

#[test]
fn each_fault_has_its_documented_effect() {
    let (old, new) = (image(3, 1), image(3, 2));
    let after = |fault| {
        let device = device(FaultPlan::new(7).nth(Op::Write, 1, fault));
        let result = write(&device, 3, 2);
        let changed: Vec<_> = device
            .pages()
            .into_iter()
            .filter(|page| device.raw_page(*page) != Some(image(page.0, 1).0))
            .collect();
        (result, device.raw_page(PageId(3)).expect("written"), changed)
    };
    let (result, bytes, changed) = after(Fault::Lost);
    assert!(result.is_ok() && bytes == old.0 && changed.is_empty());
    let (result, bytes, changed) = after(Fault::Misdirected);
    assert!(result.is_ok() && bytes == old.0 && changed.len() == 1);
    let (result, bytes, changed) = after(Fault::Short(Unit::Page));
    assert!(result.unwrap_err().kind() == ErrorKind::WriteZero && bytes == old.0);
    assert!(changed.is_empty());
    let (result, bytes, _) = after(Fault::Torn(Unit::Page));
    assert!(result.is_ok() && bytes == old.0);
    let (result, bytes, _) = after(Fault::Torn(Unit::Sector));
    assert!(result.is_ok() && bytes != new.0);
    for (index, sector) in bytes.chunks(512).enumerate() {
        let range = index * 512..(index + 1) * 512;
        assert!(sector == &old.0[range.clone()] || sector == &new.0[range]);
    }

    let device = device(
        FaultPlan::new(7).nth(Op::Read, 1, Fault::Stale).nth(Op::Read, 2, Fault::BitFlip).nth(
            Op::Read,
            3,
            Fault::Short(Unit::Sector),
        ),
    );
    write(&device, 3, 2).expect("no fault for writes");
    assert!(read(&device, 3).expect("stale").0 == old.0);
    let flipped = read(&device, 3).expect("flipped");
    let bits: u32 = flipped.0.iter().zip(&new.0).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!(bits, 1);
    assert_eq!(read(&device, 3).err().expect("short").kind(), ErrorKind::UnexpectedEof);
    assert!(read(&device, 3).expect("no more").0 == new.0);
    assert_eq!(read(&device, 8).err().expect("outside").kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_full_device_refuses_reservations_and_writes_beyond() {
    let device = device(FaultPlan::new(3).limit(10));
    device.reserve(10).expect("room");
    assert_eq!(device.reserve(11).unwrap_err().kind(), ErrorKind::StorageFull);
    write(&device, 9, 1).expect("room");
    assert_eq!(write(&device, 10, 1).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(device.capacity_pages(), 10);
}

#[test]
fn latencies_of_asynchronous_reads_overlap_and_dropped_ones_come_back() {
    let wait = Duration::from_millis(50);
    let device = Arc::new(device(FaultPlan::new(3).always(Op::Read, Fault::Latency(wait))));
    let frames = Frames::new(8);
    let mut reads: Vec<_> = (0..8)
        .map(|page| frames.read(|target| device.clone().start_read(target), page, page.into()))
        .collect();
    drop(reads.pop());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for (page, read) in reads.into_iter().enumerate() {
        let (target, result) = runtime.block_on(read);
        result.expect("slow but good");
        assert!(target.bytes() == &image(page as u64, 1).0);
        target.finish();
    }
    assert!(device.counters().reads_at_once > 1, "{:?}", device.counters());
    frames.wait_for_abandoned(1);
}

#[test]
fn decay_at_rest_is_durable() {
    let device = device(FaultPlan::new(3));
    write(&device, 2, 2).expect("no faults");
    let rest = device.clone_at_rest();
    rest.modify_raw(PageId(2), |bytes| bytes[9] ^= 4);
    let crashed = rest.crash(1);
    let mut expected = image(2, 2).0;
    expected[9] ^= 4;
    assert!(crashed.raw_page(PageId(2)) == Some(expected));
    assert!(device.raw_page(PageId(2)) == Some(image(2, 2).0), "the copy is a copy");
}

#[test]
fn over_many_seeds_a_crash_loses_keeps_and_tears() {
    let device = device(FaultPlan::new(3));
    write(&device, 4, 2).expect("no faults");
    write(&device, 20, 1).expect("no faults");
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let crashed = device.crash(seed);
        let bytes = crashed.raw_page(PageId(4)).expect("synced once");
        seen.insert(match bytes {
            _ if bytes == image(4, 1).0 => "lost",
            _ if bytes == image(4, 2).0 => "kept",
            _ => "torn",
        });
        if crashed.capacity_pages() == 8 {
            seen.insert("shorter");
        }
    }
    assert_eq!(seen, BTreeSet::from(["kept", "lost", "shorter", "torn"]));
}

#[test]
fn a_cut_is_lost_as_a_whole_or_not_until_it_is_synced() {
    let device = device(FaultPlan::new(3));
    device.reserve(30).expect("room");
    write(&device, 20, 1).expect("no faults");
    Storage::sync(&device).expect("no faults");
    device.shrink(10).expect("no faults");
    assert!(read(&device, 20).is_err());
    // Extend the device again, and write there.
    device.reserve(25).expect("room");
    assert!(read(&device, 20).expect("inside").0 == [0; PAGE_SIZE]);
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let crashed = device.crash(seed);
        let old = crashed.raw_page(PageId(20)).is_some_and(|bytes| bytes == image(20, 1).0);
        seen.insert((crashed.capacity_pages(), old));
    }
    assert_eq!(seen, BTreeSet::from([(25, false), (30, true)]));
    Storage::sync(&device).expect("no faults");
    assert!((0..50).all(|seed| device.crash(seed).capacity_pages() == 25));
    assert!((0..50).all(|seed| device.crash(seed).raw_page(PageId(20)).is_none()));
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64),
    Read(u64),
    Sync,
    Reserve(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..12u64).prop_map(Step::Write),
        3 => (0..12u64).prop_map(Step::Read),
        1 => Just(Step::Sync),
        1 => (0..24u64).prop_map(Step::Reserve),
    ];
    prop::collection::vec(step, 1..60)
}

/// Runs the steps. Returns the result of each, with the bytes that were read.
fn run(device: &SimStorage, steps: &[Step]) -> Vec<String> {
    let mut version = 10;
    let outcome = |step: &Step| {
        version += 1;
        match *step {
            Step::Write(page) => format!("{:?}", write(device, page, version)),
            Step::Read(page) => {
                format!("{:?}", read(device, page).map(|image| crc_fast::crc32_iscsi(&image.0)))
            }
            Step::Sync => format!("{:?}", Storage::sync(device)),
            Step::Reserve(pages) => format!("{:?}", device.reserve(pages)),
        }
    };
    steps.iter().map(outcome).collect()
}

proptest! {
    #[test]
    fn the_same_seed_gives_the_same_faults(seed: u64, crash_seed: u64, steps in steps()) {
        let plan = FaultPlan::new(seed)
            .sometimes(Op::Any, 0.1, Fault::Error(ErrorKind::Other))
            .sometimes(Op::Write, 0.1, Fault::Torn(Unit::Sector))
            .sometimes(Op::Write, 0.1, Fault::Misdirected)
            .sometimes(Op::Write, 0.1, Fault::Lost)
            .sometimes(Op::Read, 0.2, Fault::BitFlip)
            .limit(20);
        let (one, two) = (device(plan.clone()), device(plan));
        prop_assert_eq!(run(&one, &steps), run(&two, &steps));
        prop_assert_eq!(one.counters(), two.counters());
        let (one, two) = (one.crash(crash_seed), two.crash(crash_seed));
        prop_assert_eq!(one.pages(), two.pages());
        prop_assert_eq!(one.capacity_pages(), two.capacity_pages());
        for page in one.pages() {
            prop_assert!(one.raw_page(page) == two.raw_page(page));
        }
    }

    #[test]
    fn a_crash_leaves_only_synced_or_later_contents(crash_seed: u64, steps in steps()) {
        let device = device(FaultPlan::new(0));
        // The possible contents of each page, by sector; the first entry is that of the last sync.
        let mut possible: Vec<Vec<[u8; PAGE_SIZE]>> =
            (0..12)
                .map(|page| vec![if page < 8 { image(page, 1).0 } else { [0; PAGE_SIZE] }])
                .collect();
        for (step, version) in steps.iter().zip(2..) {
            match *step {
                Step::Write(page) => {
                    write(&device, page, version).expect("no faults");
                    possible[page as usize].push(image(page, version).0);
                }
                Step::Read(_) => {}
                Step::Sync => {
                    Storage::sync(&device).expect("no faults");
                    for versions in &mut possible {
                        versions.drain(..versions.len() - 1);
                    }
                }
                Step::Reserve(pages) => device.reserve(pages).expect("no faults"),
            }
        }
        let crashed = device.crash(crash_seed);
        prop_assert!(crashed.capacity_pages() >= 8);
        prop_assert!(crashed.unsynced_pages().is_empty());
        for (page, versions) in possible.iter().enumerate() {
            let bytes = crashed.raw_page(PageId(page as u64)).unwrap_or([0; PAGE_SIZE]);
            for (index, sector) in bytes.chunks(512).enumerate() {
                let range = index * 512..(index + 1) * 512;
                prop_assert!(
                    versions.iter().any(|version| &version[range.clone()] == sector),
                    "page {page} sector {index} holds bytes that were never written"
                );
            }
        }
    }
}
