//! Statistics and latencies for Prometheus, by the facade of the crate `metrics`. A service would
//! give the text as the answer to `GET /metrics`.

use metrics_exporter_prometheus::PrometheusBuilder;
use std::{error::Error, time::Duration};
use wattle::{Engine, Options, Stats};

fn main() -> Result<(), Box<dyn Error>> {
    let (path, _temporary) = wattle_examples::store_path()?;
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    // Operations that wait longer are warnings of the crate tracing.
    let options = Options::default().pool_bytes(2 << 20).slow_operation(Duration::from_millis(100));
    let engine = Engine::open(&path, options)?;
    let tree = engine.tree("records")?;
    let session = engine.session()?;
    let records = (0..5000_u32).map(|number| (number.to_be_bytes(), [7; 400]));
    session.bulk_load(&tree, records)?;
    for number in 0..5000_u32 {
        session.get(&tree, &(number * 7919 % 5000).to_be_bytes())?;
    }
    for number in 0..20_u32 {
        session.put(&tree, &number.to_be_bytes(), b"changed")?;
    }

    engine.publish_metrics("orders");
    println!("{}", prometheus.render());

    // The same as JSON, and back.
    let stats = engine.stats();
    let json = serde_json::to_string(&stats)?;
    let read: Stats = serde_json::from_str(&json)?;
    println!("JSON with {} commits, {} faults", read.commits, read.faults);
    if read != stats {
        return Err("the statistics changed on their way through JSON".into());
    }
    drop((session, tree));
    engine.close()?;
    Ok(())
}
