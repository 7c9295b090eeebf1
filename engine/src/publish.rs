//! Statistics and latencies for the facade of the crate `metrics`.

use crate::{
    stats::{Refused, Stats},
    waits::{Waited, Waits},
};
use metrics::{counter, gauge};

/// Quantiles of latencies, as labels and as numbers.
const QUANTILES: [(&str, f64); 5] =
    [("0.5", 0.5), ("0.95", 0.95), ("0.99", 0.99), ("0.999", 0.999), ("1", 1.0)];

/// Sets all metrics of the engine named `engine`.
pub(crate) fn publish(engine: &str, stats: &Stats, waits: &Waits) {
    for (name, value) in counters(stats) {
        counter!(name, "engine" => engine.to_owned()).absolute(value);
    }
    for (reason, value) in refused(&stats.refused) {
        let labels = [("engine", engine.to_owned()), ("reason", reason.to_owned())];
        counter!("wattle_refused_total", &labels).absolute(value);
    }
    for (name, value) in gauges(stats) {
        gauge!(name, "engine" => engine.to_owned()).set(value);
    }
    for (waited, what) in [(Waited::Operation, "operation"), (Waited::Commit, "commit")] {
        let of = |labels: &[(&'static str, String)]| {
            let mut all = vec![("engine", engine.to_owned()), ("what", what.to_owned())];
            all.extend_from_slice(labels);
            all
        };
        let (count, quantiles) = waits.read(waited, |histogram| {
            let quantiles = QUANTILES.map(|(_, share)| histogram.value_at_quantile(share));
            (histogram.len(), quantiles)
        });
        counter!("wattle_waits_total", &of(&[])).absolute(count);
        for ((label, _), nanoseconds) in QUANTILES.iter().zip(quantiles) {
            let labels = of(&[("quantile", (*label).to_owned())]);
            gauge!("wattle_wait_seconds", &labels).set(nanoseconds as f64 / 1e9);
        }
    }
}

fn counters(stats: &Stats) -> [(&'static str, u64); 26] {
    [
        ("wattle_hits_total", stats.hits),
        ("wattle_faults_total", stats.faults),
        ("wattle_pages_read_total", stats.pages_read),
        ("wattle_pages_read_ahead_total", stats.pages_read_ahead),
        ("wattle_pages_written_total", stats.pages_written),
        ("wattle_evictions_total", stats.evictions),
        ("wattle_evictions_dirty_total", stats.evictions_dirty),
        ("wattle_epochs_total", stats.epochs),
        ("wattle_restarts_total", stats.restarts),
        ("wattle_splits_total", stats.splits),
        ("wattle_merges_total", stats.merges),
        ("wattle_contention_splits_total", stats.contention_splits),
        ("wattle_x_merges_total", stats.x_merges),
        ("wattle_frame_waits_total", stats.frame_waits),
        ("wattle_thresholds_total", stats.thresholds),
        ("wattle_candidates_total", stats.candidates),
        ("wattle_queued_total", stats.queued),
        ("wattle_swizzles_total", stats.swizzles),
        ("wattle_unswizzles_total", stats.unswizzles),
        ("wattle_log_bytes_total", stats.log_bytes),
        ("wattle_log_record_bytes_total", stats.log_record_bytes),
        ("wattle_log_image_bytes_total", stats.log_image_bytes),
        ("wattle_log_flushes_total", stats.log_flushes),
        ("wattle_log_syncs_total", stats.log_syncs),
        ("wattle_commits_total", stats.commits),
        ("wattle_checkpoints_total", stats.checkpoints),
    ]
}

fn gauges(stats: &Stats) -> [(&'static str, f64); 15] {
    [
        ("wattle_frames", stats.frames as f64),
        ("wattle_free_frames", stats.free_frames as f64),
        ("wattle_write_concurrency", stats.write_concurrency as f64),
        ("wattle_read_ahead", stats.read_ahead as f64),
        ("wattle_evictor_cpu_seconds", stats.evictor_cpu_seconds),
        ("wattle_threshold_sum", stats.threshold_sum),
        ("wattle_queued_writes", stats.queued_writes as f64),
        ("wattle_file_bytes", stats.file_bytes as f64),
        ("wattle_used_pages", stats.used_pages as f64),
        ("wattle_pages", stats.pages as f64),
        ("wattle_compact_bytes", stats.compact_bytes as f64),
        ("wattle_log_sync_median_us", stats.log_sync_median_us),
        ("wattle_log_segments", stats.log_segments as f64),
        ("wattle_version_bytes", stats.version_bytes as f64),
        ("wattle_replaced_bytes", stats.replaced_bytes as f64),
    ]
}

fn refused(refused: &Refused) -> [(&'static str, u64); 9] {
    [
        ("no_page", refused.no_page),
        ("pinned", refused.pinned),
        ("hot_children", refused.hot_children),
        ("being_written", refused.being_written),
        ("hotter", refused.hotter),
        ("latched", refused.latched),
        ("parent_latched", refused.parent_latched),
        ("changed", refused.changed),
        ("queue_full", refused.queue_full),
    ]
}
