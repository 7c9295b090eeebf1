//! The hybrid latch without contention, one pair of calls for each mode.

use criterion::Criterion;
use std::hint::black_box;
use wattle_buffer::Latch;

pub fn benches(criterion: &mut Criterion) {
    let latch = Latch::default();
    let mut group = criterion.benchmark_group("latch");
    group.bench_function("optimistic, validate", |bencher| {
        bencher.iter(|| {
            let version = black_box(&latch).optimistic();
            black_box(&latch).validate(version).expect("no writer");
        });
    });
    group.bench_function("shared, release", |bencher| {
        bencher.iter(|| {
            assert!(black_box(&latch).try_shared());
            black_box(&latch).release_shared();
        });
    });
    group.bench_function("exclusive, release", |bencher| {
        bencher.iter(|| {
            let version = black_box(&latch).try_exclusive().expect("free");
            black_box(&latch).release(version, true);
        });
    });
    group.finish();
}
