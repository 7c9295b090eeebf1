//! The log on the simulated device: effects of syncs, crashes and faults.

use super::*;
use crate::{
    ids::PageId,
    page::{PAGE_SIZE, PageImage},
};
use std::{collections::BTreeSet, io::ErrorKind};

const BYTES: u64 = 8 * PAGE_SIZE as u64;

fn device(plan: FaultPlan) -> SimStorage {
    let device = SimStorage::new(FaultPlan::new(plan.seed()));
    device.create(1, BYTES).expect("room");
    LogStorage::write(&device, 1, &[(0, &[1; 2 * PAGE_SIZE])]).expect("written");
    LogStorage::sync(&device, 1).expect("synced");
    device.set_plan(plan);
    device
}

#[test]
fn a_crash_mixes_sectors_of_unsynced_writes() {
    let mut seen = BTreeSet::new();
    for seed in 0..64 {
        let device = device(FaultPlan::new(1));
        LogStorage::write(&device, 1, &[(0, &[2; PAGE_SIZE]), (PAGE_SIZE as u64, &[3; PAGE_SIZE])])
            .expect("written");
        assert_eq!(device.unsynced_segments(), [1]);
        let crashed = device.crash(seed);
        let bytes = crashed.raw_segment(1).expect("created durably");
        assert_eq!(bytes.len() as u64, BYTES, "seed {seed}");
        for (index, sector) in bytes.chunks(512).enumerate() {
            let new = [2, 3].get(index / 8).copied().unwrap_or(0);
            let old = if index < 16 { 1 } else { 0 };
            let first = sector[0];
            assert!(sector.iter().all(|byte| *byte == first) && (first == old || first == new));
        }
        seen.insert(bytes);
        // The copy at rest holds the newest pages and segments, of one instant.
        assert_eq!(device.clone_at_rest().raw_segment(1), device.raw_segment(1));
    }
    assert!(seen.len() > 20, "{} outcomes", seen.len());
}

#[test]
fn syncs_of_pages_and_of_segments_are_apart() {
    let device = device(FaultPlan::new(1));
    device.create(2, BYTES).expect("room");
    LogStorage::write(&device, 1, &[(0, &[2; PAGE_SIZE])]).expect("written");
    LogStorage::write(&device, 2, &[(0, &[2; PAGE_SIZE])]).expect("written");
    Storage::sync(&device).expect("synced");
    assert_eq!(device.unsynced_segments(), [1, 2]);
    LogStorage::sync(&device, 2).expect("synced");
    assert_eq!(device.unsynced_segments(), [1]);
    device.remove(1).expect("removed");
    assert_eq!(device.crash(1).segments().expect("segments"), [(2, BYTES)]);
    assert_eq!(LogStorage::sync(&device, 1).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn faults_hit_the_operations_of_the_log() {
    let device = device(
        FaultPlan::new(7)
            .nth(Op::LogWrite, 2, Fault::Short(Unit::Sector))
            .nth(Op::LogRead, 1, Fault::BitFlip)
            .nth(Op::LogSync, 1, Fault::Error(ErrorKind::Other))
            .nth(Op::LogCreate, 1, Fault::Error(ErrorKind::StorageFull))
            .log_limit(2 * BYTES),
    );
    let write = |value: u8| LogStorage::write(&device, 1, &[(0, &[value; 3 * PAGE_SIZE])]);
    let error = write(5).unwrap_err();
    assert!(error.to_string().contains("segment 1, page 1"), "{error}");
    let bytes = device.raw_segment(1).expect("there");
    assert_eq!((bytes[0], bytes[2 * PAGE_SIZE]), (5, 0), "the rest was not written");
    write(6).expect("the second time");
    assert!(LogStorage::sync(&device, 1).is_err());
    assert_eq!(device.unsynced_segments(), [1]);
    let mut page = vec![0; 100];
    LogStorage::read(&device, 1, 0, &mut page).expect("read, with a wrong bit in its page");
    assert!(device.create(2, BYTES).is_err());
    device.create(2, BYTES).expect("room for two");
    assert_eq!(device.create(3, BYTES).unwrap_err().kind(), ErrorKind::StorageFull);
    let counters = device.counters();
    assert_eq!((counters.log_writes, counters.log_syncs), (7, 2));
    assert_eq!((counters.faults, counters.log_creations), (4, 4));
}

#[test]
fn raw_segments_may_have_any_length() {
    let device = device(FaultPlan::new(1));
    let mut bytes = device.raw_segment(1).expect("there");
    bytes.truncate(5000);
    bytes[4999] = 9;
    device.set_raw_segment(1, bytes.clone());
    assert_eq!(device.raw_segment(1), Some(bytes));
    let mut last = [0; 2];
    LogStorage::read(&device, 1, 4998, &mut last).expect("the end");
    assert_eq!(last, [1, 9]);
    let error = LogStorage::read(&device, 1, 4999, &mut last).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn writes_of_a_failed_sync_are_seen_until_a_power_cut_and_never_durable() {
    let unsettled = Fault::Unsettled(ErrorKind::Other);
    let device =
        device(FaultPlan::new(1).nth(Op::LogSync, 1, unsettled).nth(Op::Sync, 1, unsettled));
    let image = PageImage([4; PAGE_SIZE]);
    let write = |page| {
        let mut results = Vec::new();
        device.write_pages(&[PageWrite { page: PageId(page), image: &image }], &mut results);
        results.pop().expect("one").expect("written");
    };
    write(7);
    LogStorage::write(&device, 1, &[(0, &[4; PAGE_SIZE])]).expect("written");
    assert!(Storage::sync(&device).is_err() && LogStorage::sync(&device, 1).is_err());
    write(8);
    Storage::sync(&device).expect("the second time");
    LogStorage::sync(&device, 1).expect("the second time");
    assert_eq!(device.raw_page(PageId(7)), Some([4; PAGE_SIZE]));
    assert_eq!(device.raw_segment(1).expect("there")[0], 4);
    let at_rest = device.clone_at_rest();
    assert_eq!(at_rest.crash(1).raw_page(PageId(7)), Some([4; PAGE_SIZE]));
    for cut in [Cut::Sectors, Cut::All, Cut::Prefix] {
        let left = device.crash_as(1, cut);
        assert_eq!((left.raw_page(PageId(7)), left.raw_page(PageId(8))), (None, Some(image.0)));
        assert_eq!(left.raw_segment(1).expect("there")[0], 1);
    }
    write(7);
    Storage::sync(&device).expect("synced");
    assert_eq!(device.crash(1).raw_page(PageId(7)), Some([4; PAGE_SIZE]), "it was written again");
}

#[test]
fn a_power_cut_undoes_changes_of_an_unsynced_directory() {
    let unsettled = Fault::Unsettled(ErrorKind::Other);
    let plan = FaultPlan::new(1).nth(Op::LogCreate, 1, unsettled).nth(Op::LogRemove, 1, unsettled);
    let device = device(plan);
    let numbers = |device: &SimStorage| -> Vec<u64> {
        device.segments().expect("segments").into_iter().map(|(number, _)| number).collect()
    };
    assert!(device.create(2, BYTES).is_err() && device.remove(1).is_err());
    assert_eq!((numbers(&device), numbers(&device.crash(1))), (vec![2], vec![1]));
    let process = device.crash_as(1, Cut::Process);
    assert_eq!((numbers(&process), numbers(&process.crash(1))), (vec![2], vec![1]));
    assert_eq!(device.remove(1).unwrap_err().kind(), ErrorKind::NotFound);
    device.create(3, BYTES).expect("the next one, and its directory");
    assert_eq!(numbers(&device.crash(1)), [2, 3]);
}
