//! The consistency conditions of clause 3.3.2, and three more: rows have the layout of their table,
//! indexes agree with their tables, and counters that the conditions do not cover, such as those of
//! STOCK, agree with the rows that they count.

use crate::report::Condition;
use crate::report::figures::plural;

/// A rule that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Condition 1.
    WarehouseYtd,
    /// Condition 2.
    NextOrder,
    /// Condition 3.
    NewOrderRange,
    /// Condition 4.
    LinesOfDistrict,
    /// Condition 5.
    CarrierOfNewOrder,
    /// Condition 6.
    LinesOfOrder,
    /// Condition 7.
    DeliveryDate,
    /// Condition 8.
    WarehouseHistory,
    /// Condition 9.
    DistrictHistory,
    /// Condition 10.
    Balance,
    /// Condition 11, which holds only after the load.
    Undelivered,
    /// Condition 12.
    BalanceAndPayments,
    /// Every row has the layout of its table, and tables of a fixed size have all their rows.
    Rows,
    /// Each index has one entry for each row.
    Indexes,
    /// S_YTD, S_ORDER_CNT and S_REMOTE_CNT agree with the lines of orders since the load,
    /// C_PAYMENT_CNT and C_DELIVERY_CNT with payments and deliveries, O_ALL_LOCAL with the lines.
    /// S_QUANTITY, OL_QUANTITY, O_CARRIER_ID and C_CREDIT have a value that the specification
    /// allows.
    Counters,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 15] = [
        Rule::WarehouseYtd,
        Rule::NextOrder,
        Rule::NewOrderRange,
        Rule::LinesOfDistrict,
        Rule::CarrierOfNewOrder,
        Rule::LinesOfOrder,
        Rule::DeliveryDate,
        Rule::WarehouseHistory,
        Rule::DistrictHistory,
        Rule::Balance,
        Rule::Undelivered,
        Rule::BalanceAndPayments,
        Rule::Rows,
        Rule::Indexes,
        Rule::Counters,
    ];

    /// Its clause and its text.
    pub fn name(self) -> &'static str {
        match self {
            Rule::WarehouseYtd => "3.3.2.1: W_YTD = sum(D_YTD)",
            Rule::NextOrder => "3.3.2.2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
            Rule::NewOrderRange => "3.3.2.3: max(NO_O_ID) - min(NO_O_ID) + 1 = rows of NEW-ORDER",
            Rule::LinesOfDistrict => "3.3.2.4: sum(O_OL_CNT) = rows of ORDER-LINE",
            Rule::CarrierOfNewOrder => {
                "3.3.2.5: O_CARRIER_ID is null where NEW-ORDER has the order"
            }
            Rule::LinesOfOrder => "3.3.2.6: O_OL_CNT = rows of ORDER-LINE of the order",
            Rule::DeliveryDate => "3.3.2.7: OL_DELIVERY_D is null where O_CARRIER_ID is null",
            Rule::WarehouseHistory => "3.3.2.8: W_YTD = sum(H_AMOUNT)",
            Rule::DistrictHistory => "3.3.2.9: D_YTD = sum(H_AMOUNT)",
            Rule::Balance => "3.3.2.10: C_BALANCE = sum(OL_AMOUNT delivered) - sum(H_AMOUNT)",
            Rule::Undelivered => "3.3.2.11: rows of ORDER - rows of NEW-ORDER = 2100",
            Rule::BalanceAndPayments => {
                "3.3.2.12: C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT delivered)"
            }
            Rule::Rows => "all rows are there and whole",
            Rule::Indexes => "indexes agree with their tables",
            Rule::Counters => "counters agree with the rows that they count",
        }
    }
}

/// The result of one rule.
#[derive(Clone, Debug, Default)]
struct Finding {
    checked: u64,
    failed: u64,
    first: Option<String>,
}

/// The results of all rules.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    of: [Finding; Rule::ALL.len()],
}

impl Findings {
    /// Notes whether `rule` holds in one case; `where_not` describes the case if it does not.
    #[inline]
    pub fn expect(&mut self, rule: Rule, holds: bool, where_not: impl FnOnce() -> String) {
        let finding = &mut self.of[rule as usize];
        finding.checked += 1;
        if !holds {
            finding.failed += 1;
            finding.first.get_or_insert_with(where_not);
        }
    }

    /// Adds the results of another part of the data.
    pub fn merge(&mut self, other: Findings) {
        for (mine, theirs) in self.of.iter_mut().zip(other.of) {
            mine.checked += theirs.checked;
            mine.failed += theirs.failed;
            mine.first = mine.first.take().or(theirs.first);
        }
    }

    /// Whether all rules hold.
    pub fn passed(&self) -> bool {
        self.of.iter().all(|finding| finding.failed == 0)
    }

    /// The results for a report, with `when` they were checked before each name. `loaded`:
    /// condition 11 must hold.
    pub fn conditions(&self, when: &str, loaded: bool) -> Vec<Condition> {
        let rules = Rule::ALL.into_iter().zip(&self.of);
        let meant = rules.filter(|(rule, _)| loaded || *rule != Rule::Undelivered);
        let condition = |(rule, finding): (Rule, &Finding)| Condition {
            name: format!("{when}, {}", rule.name()),
            passed: finding.failed == 0,
            detail: Some(match &finding.first {
                None => format!("holds in {}", plural(finding.checked, "case")),
                Some(first) if finding.failed == 1 => first.clone(),
                Some(first) => format!("{first}; and {} more", finding.failed - 1),
            }),
        };
        meant.map(condition).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_told_and_the_others_are_counted() {
        let mut findings = Findings::default();
        findings.expect(Rule::Balance, true, || unreachable!("it holds"));
        let mut others = Findings::default();
        for c in 1..=3 {
            others.expect(Rule::Balance, false, || format!("customer {c} owes too much"));
        }
        findings.merge(others);
        assert!(!findings.passed());
        let conditions = findings.conditions("after the run", false);
        assert_eq!(conditions.len(), 14, "condition 11 does not count after a run");
        let failed: Vec<_> = conditions.iter().filter(|condition| !condition.passed).collect();
        assert_eq!(failed.len(), 1);
        assert!(failed[0].name.starts_with("after the run, 3.3.2.10: C_BALANCE"));
        assert_eq!(failed[0].detail.as_deref(), Some("customer 1 owes too much; and 2 more"));
        assert_eq!(Findings::default().conditions("", true).len(), 15);
    }

    #[test]
    fn rules_are_in_the_order_of_their_numbers() {
        assert!(Rule::ALL.iter().enumerate().all(|(place, rule)| *rule as usize == place));
    }
}
