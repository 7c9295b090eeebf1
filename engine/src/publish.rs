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
    let values = Values::of(stats);
    for (name, value) in values.counters {
        counter!(name, "engine" => engine.to_owned()).absolute(value);
    }
    for (reason, value) in values.refused {
        let labels = [("engine", engine.to_owned()), ("reason", reason.to_owned())];
        counter!("wattle_refused_total", &labels).absolute(value);
    }
    for (name, value) in values.gauges {
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

/// The numbers of a [`Stats`] by name. All its fields are taken apart, so that a new one does not
/// compile until it has a name here.
struct Values {
    /// They only grow.
    counters: [(&'static str, u64); 28],
    /// As they are now.
    gauges: [(&'static str, f64); 19],
    /// Pages that were not evicted, by reason.
    refused: [(&'static str, u64); 9],
}

impl Values {
    // Long because of the number of fields.
    fn of(stats: &Stats) -> Values {
        let &Stats {
            frames,
            free_frames,
            hits,
            faults,
            pages_read,
            pages_read_ahead,
            warm_pages_listed,
            warm_pages_read,
            is_warming,
            pages_written,
            device_reads_per_second,
            device_writes_per_second,
            write_concurrency,
            read_ahead,
            evictions,
            evictions_dirty,
            evictor_cpu_seconds,
            epochs,
            restarts,
            splits,
            merges,
            contention_splits,
            x_merges,
            redistributions,
            frame_waits,
            thresholds,
            threshold_sum,
            candidates,
            queued,
            refused:
                Refused {
                    no_page,
                    pinned,
                    hot_children,
                    being_written,
                    hotter,
                    latched,
                    parent_latched,
                    changed,
                    queue_full,
                },
            swizzles,
            unswizzles,
            queued_writes,
            file_bytes,
            used_pages,
            pages,
            compact_bytes,
            log_bytes,
            log_record_bytes,
            log_image_bytes,
            log_flushes,
            log_syncs,
            log_sync_median_us,
            commits,
            log_segments,
            checkpoints,
            version_bytes,
            replaced_bytes,
        } = stats;
        Values {
            counters: [
                ("wattle_hits_total", hits),
                ("wattle_faults_total", faults),
                ("wattle_pages_read_total", pages_read),
                ("wattle_pages_read_ahead_total", pages_read_ahead),
                ("wattle_warm_pages_read_total", warm_pages_read),
                ("wattle_pages_written_total", pages_written),
                ("wattle_evictions_total", evictions),
                ("wattle_evictions_dirty_total", evictions_dirty),
                ("wattle_epochs_total", epochs),
                ("wattle_restarts_total", restarts),
                ("wattle_splits_total", splits),
                ("wattle_merges_total", merges),
                ("wattle_contention_splits_total", contention_splits),
                ("wattle_x_merges_total", x_merges),
                ("wattle_redistributions_total", redistributions),
                ("wattle_frame_waits_total", frame_waits),
                ("wattle_thresholds_total", thresholds),
                ("wattle_candidates_total", candidates),
                ("wattle_queued_total", queued),
                ("wattle_swizzles_total", swizzles),
                ("wattle_unswizzles_total", unswizzles),
                ("wattle_log_bytes_total", log_bytes),
                ("wattle_log_record_bytes_total", log_record_bytes),
                ("wattle_log_image_bytes_total", log_image_bytes),
                ("wattle_log_flushes_total", log_flushes),
                ("wattle_log_syncs_total", log_syncs),
                ("wattle_commits_total", commits),
                ("wattle_checkpoints_total", checkpoints),
            ],
            gauges: [
                ("wattle_frames", frames as f64),
                ("wattle_free_frames", free_frames as f64),
                // 0 if the device was not probed.
                ("wattle_device_reads_per_second", device_reads_per_second.unwrap_or(0) as f64),
                ("wattle_device_writes_per_second", device_writes_per_second.unwrap_or(0) as f64),
                ("wattle_write_concurrency", write_concurrency as f64),
                ("wattle_read_ahead", read_ahead as f64),
                ("wattle_warm_pages_listed", warm_pages_listed as f64),
                ("wattle_is_warming", f64::from(u8::from(is_warming))),
                ("wattle_evictor_cpu_seconds", evictor_cpu_seconds),
                ("wattle_threshold_sum", threshold_sum),
                ("wattle_queued_writes", queued_writes as f64),
                ("wattle_file_bytes", file_bytes as f64),
                ("wattle_used_pages", used_pages as f64),
                ("wattle_pages", pages as f64),
                ("wattle_compact_bytes", compact_bytes as f64),
                ("wattle_log_sync_median_us", log_sync_median_us),
                ("wattle_log_segments", log_segments as f64),
                ("wattle_version_bytes", version_bytes as f64),
                ("wattle_replaced_bytes", replaced_bytes as f64),
            ],
            refused: [
                ("no_page", no_page),
                ("pinned", pinned),
                ("hot_children", hot_children),
                ("being_written", being_written),
                ("hotter", hotter),
                ("latched", latched),
                ("parent_latched", parent_latched),
                ("changed", changed),
                ("queue_full", queue_full),
            ],
        }
    }
}
