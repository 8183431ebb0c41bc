//! Charts: figures in, SVG out.
//!
//! A chart knows no scenario and no turn. It is as wide as the page: places are shares of the plot, while text and
//! strokes keep their size, so that the same drawing reads on a phone and on paper. Colours are classes of the style
//! sheet, so that it is right in the light and in the dark. Each has a title and a description for who can't see it.

mod bars;
mod dots;
mod frame;
mod ladder;
mod lines;
mod scale;
mod stack;
mod thin;

pub(crate) use self::{
    bars::{Bar, Item, bars},
    dots::{Kind, Latency, Row, Spread, dots},
    frame::{Caption, Key},
    ladder::{Ladder, Point, Rung, ladder},
    lines::{Band, Line, Lines, lines},
    stack::{Layer, Stack, stack},
};
