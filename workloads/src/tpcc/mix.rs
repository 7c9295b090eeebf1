//! The mix of transactions, and their order (clauses 5.2.3 and 5.2.4.2).

use clap::ValueEnum;
use serde::Serialize;

use super::random::shuffle;
use crate::rng::Rng;

/// The types of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Enters an order.
    NewOrder,
    /// Books a payment of a customer.
    Payment,
    /// Shows the newest order of a customer.
    OrderStatus,
    /// Delivers the oldest order of each district.
    Delivery,
    /// Counts items of recent orders whose stock is low.
    StockLevel,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] =
        [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "new-order",
            Kind::Payment => "payment",
            Kind::OrderStatus => "order-status",
            Kind::Delivery => "delivery",
            Kind::StockLevel => "stock-level",
        }
    }
}

/// The transactions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// All five, by decks of cards.
    Standard,
    /// New-Order only.
    NewOrder,
    /// Payment only.
    Payment,
    /// Order-Status only.
    OrderStatus,
    /// Delivery only; after a while there are no orders left.
    Delivery,
    /// Stock-Level only.
    StockLevel,
}

impl Mix {
    /// The types that occur, in the order of reports.
    pub fn kinds(self) -> &'static [Kind] {
        match self {
            Mix::Standard => &Kind::ALL,
            Mix::NewOrder => &[Kind::NewOrder],
            Mix::Payment => &[Kind::Payment],
            Mix::OrderStatus => &[Kind::OrderStatus],
            Mix::Delivery => &[Kind::Delivery],
            Mix::StockLevel => &[Kind::StockLevel],
        }
    }
}

/// Cards of a deck: ten New-Orders, ten Payments, and one each of the other three.
const CARDS: usize = 23;

/// The cards of a worker, each a position in [`Mix::kinds`].
#[derive(Clone, Debug)]
pub struct Deck {
    kinds: &'static [Kind],
    cards: [u8; CARDS],
    next: usize,
}

impl Deck {
    /// A deck that will be shuffled before its first card.
    pub fn new(mix: Mix) -> Self {
        let mut cards = [0; CARDS];
        if mix == Mix::Standard {
            for (place, card) in cards.iter_mut().enumerate() {
                *card = match place {
                    0..10 => 0,
                    10..20 => 1,
                    place => (place - 18) as u8,
                };
            }
        }
        Self { kinds: mix.kinds(), cards, next: CARDS }
    }

    /// The next card. After the last one it shuffles the deck.
    #[inline]
    pub fn next(&mut self, rng: &mut Rng) -> (usize, Kind) {
        if self.next == CARDS {
            shuffle(rng, &mut self.cards);
            self.next = 0;
        }
        let card = usize::from(self.cards[self.next]);
        self.next += 1;
        (card, self.kinds[card])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deck_has_the_cards_of_the_standard_mix_in_another_order() {
        let mut rng = Rng::new(1, 1);
        let mut deck = Deck::new(Mix::Standard);
        let mut orders = Vec::new();
        for _ in 0..50 {
            let cards: Vec<usize> = (0..CARDS).map(|_| deck.next(&mut rng).0).collect();
            let count = |kind| cards.iter().filter(|card| **card == kind).count();
            assert_eq!([0, 1, 2, 3, 4].map(count), [10, 10, 1, 1, 1]);
            orders.push(cards);
        }
        orders.dedup();
        assert_eq!(orders.len(), 50);
        let mut deck = Deck::new(Mix::Delivery);
        assert!((0..100).all(|_| deck.next(&mut rng) == (0, Kind::Delivery)));
    }
}
