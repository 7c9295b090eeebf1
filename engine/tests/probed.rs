//! The figures of a probed device, kept beside a store, are used when the store is opened; damaged
//! ones do not stop the opening.

use std::path::PathBuf;
use wattle::io::{DEVICE_FILE, DeviceRates, DeviceRecord, Directory};
use wattle::{Engine, Options};

/// A directory that is removed at the end.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_store_opens_with_the_figures_of_its_device_and_with_damaged_ones() {
    let name = format!("wattle-probed-{}", std::process::id());
    let place = Place(std::env::temp_dir().join(name));
    let options = || Options::default().pool_bytes(8 << 20);
    Engine::open(&place.0, options()).unwrap().close().unwrap();
    let rates = Some(DeviceRates { reads: 9000, writes: 7000 });
    let record = DeviceRecord { k_r: 24, k_w: 3, asymmetry: 1.5, probed: 0, rates };
    record.write(&Directory::open(&place.0).unwrap()).unwrap();
    let engine = Engine::open(&place.0, options()).unwrap();
    let stats = engine.stats();
    assert_eq!((stats.write_concurrency, stats.read_ahead), (3, 24));
    assert_eq!(stats.device_reads_per_second, Some(9000));
    assert_eq!(stats.device_writes_per_second, Some(7000));
    engine.close().unwrap();
    // An option that is given is stronger.
    let engine = Engine::open(&place.0, options().write_concurrency(7)).unwrap();
    assert_eq!((engine.stats().write_concurrency, engine.stats().read_ahead), (7, 24));
    engine.close().unwrap();
    std::fs::write(place.0.join(DEVICE_FILE), "wattle-device 1\nk_w 3\n").unwrap();
    let engine = Engine::open(&place.0, options()).unwrap();
    assert_eq!((engine.stats().write_concurrency, engine.stats().read_ahead), (16, 32));
    assert_eq!(engine.stats().device_reads_per_second, None);
    engine.close().unwrap();
}
