//! The sizes of clause 4.2, and the input of a transaction (clauses 5.3.5 and 5.3.6).

use crate::rng::Rng;

/// Tellers of a branch.
pub const TELLERS: u64 = 10;
/// Accounts of a branch.
pub const ACCOUNTS: u64 = 100_000;
/// Share of transactions whose account belongs to the branch of the teller, percent.
pub const LOCAL_PERCENT: u64 = 85;
/// Largest amount.
pub const MAX_DELTA: i64 = 999_999;
/// Largest scale: numbers of accounts stay below 2^36.
pub const MAX_SCALE: u64 = 100_000;

/// Positions in [`crate::bench::Benchmark::TABLES`]; those of the other tables are their
/// [`super::rows::RowKind`]s.
pub const HISTORY: usize = 3;

/// The input of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// The account.
    pub account: u64,
    /// The teller.
    pub teller: u64,
    /// The branch of the teller.
    pub branch: u64,
    /// The amount to add to the balances.
    pub delta: i64,
}

impl Input {
    /// Draws a transaction on `scale` branches.
    pub fn draw(rng: &mut Rng, scale: u64) -> Input {
        let teller = rng.below(scale * TELLERS);
        let branch = teller / TELLERS;
        let local = scale == 1 || rng.below(100) < LOCAL_PERCENT;
        let home = match local {
            true => branch,
            // One of the others, uniformly.
            false => (branch + 1 + rng.below(scale - 1)) % scale,
        };
        let account = home * ACCOUNTS + rng.below(ACCOUNTS);
        let delta = rng.below(2 * MAX_DELTA as u64 + 1) as i64 - MAX_DELTA;
        Input { account, teller, branch, delta }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_have_the_shares_of_the_specification() {
        let (scale, draws) = (20, 400_000);
        let mut rng = Rng::new(3, 4);
        let mut tellers = vec![0u32; (scale * TELLERS) as usize];
        let mut homes = vec![0u32; scale as usize];
        let (mut local, mut sum, mut extremes) = (0, 0i64, (0, 0));
        for _ in 0..draws {
            let input = Input::draw(&mut rng, scale);
            assert_eq!(input.branch, input.teller / TELLERS);
            assert!(input.account < scale * ACCOUNTS && input.delta.abs() <= MAX_DELTA);
            tellers[input.teller as usize] += 1;
            homes[(input.account / ACCOUNTS) as usize] += 1;
            local += u32::from(input.account / ACCOUNTS == input.branch);
            sum += input.delta;
            extremes = (input.delta.min(extremes.0), input.delta.max(extremes.1));
        }
        let share = f64::from(local) / f64::from(draws);
        assert!((share - 0.85).abs() < 0.005, "{share} are local");
        for (counts, parts) in [(&tellers, 200.0), (&homes, 20.0)] {
            let mean = f64::from(draws) / parts;
            assert!(counts.iter().all(|count| (f64::from(*count) / mean - 1.0).abs() < 0.15));
        }
        assert!((sum as f64 / f64::from(draws)).abs() < 5_000.0, "amounts are around 0");
        assert!(extremes.0 < -990_000 && extremes.1 > 990_000);
        let mut rng = Rng::new(1, 1);
        assert!((0..1000).all(|_| Input::draw(&mut rng, 1).account < ACCOUNTS));
    }
}
