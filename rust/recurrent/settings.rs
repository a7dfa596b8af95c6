//! Constants of the time model of gated-delta-net layers, and of the search over chains.

use crate::error::{Error, Result};
use crate::segments::Segments;

/// Bytes of an activation element (bf16).
const ELEMENT: i64 = 2;
/// Recurrent state of the shape that the rates were measured at: 32 heads of 128 by 128.
const MEASURED_STATE: f64 = 524_288.0;
/// Chain summary of that shape.
const MEASURED_SUMMARY: f64 = 1_048_576.0;
/// Rates grow with the power 3/4 of what a state shrinks.
const STATE_EXPONENT: f64 = 0.75;

/// Sizes of a gated-delta-net layer; heads before tensor parallelism divides them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Hidden size of the model.
    pub hidden: i64,
    /// Key heads.
    pub key_heads: i64,
    /// Value heads.
    pub value_heads: i64,
    /// Size of a key head.
    pub key_dim: i64,
    /// Size of a value head.
    pub value_dim: i64,
    /// Taps of the convolution.
    pub conv: i64,
    /// Tensor-parallel ranks.
    pub tp: i64,
}

/// Rates in tokens or segments per millisecond, bandwidths in bytes per millisecond, times in
/// milliseconds; forward and backward of one layer together.
#[derive(Debug, Clone, PartialEq)]
pub struct RecurrentSettings {
    /// Bytes of one token's hidden state.
    pub hidden_bytes: i64,
    /// Times a moved token crosses (to the layout and back, forward and backward).
    pub exchanges: i64,
    /// Bandwidth of the exchange between the layouts.
    pub exchange_bandwidth: f64,
    /// Recurrent tokens of a segment on one rank.
    pub local_rate: f64,
    /// Recurrent tokens of a chained shard.
    pub chain_rate: f64,
    /// Tokens of the projections.
    pub dense_rate: f64,
    /// Launch of a bucket of owned segments.
    pub local_bucket_ms: f64,
    /// Launch of a bucket of chained segments.
    pub chain_bucket_ms: f64,
    /// Launch of one owned segment.
    pub local_segment_ms: f64,
    /// Bytes of a chained segment's summary.
    pub summary_bytes: i64,
    /// Times a summary crosses.
    pub summary_exchanges: i64,
    /// Bandwidth of the summaries.
    pub summary_bandwidth: f64,
    /// Summaries computed, segments per millisecond.
    pub summary_rate: f64,
    /// Scan over the ranks, per bucket of chained segments.
    pub scan_bucket_ms: f64,
    /// Scan over the ranks, segments per millisecond.
    pub scan_rate: f64,
    /// Bytes of a state handed to a child on another rank.
    pub parent_bytes: i64,
    /// Bandwidth of handed states.
    pub parent_bandwidth: f64,
    /// A set of chains replaces the best one only if it saves more than this.
    pub min_gain_ms: f64,
    /// States of the beam (at least 1 counts).
    pub beam_width: i64,
    /// Candidate groups tried from each state (at least 1 counts).
    pub branch: i64,
    /// Candidate groups in all (at least 1 counts).
    pub candidates: i64,
    /// Steps of the beam.
    pub max_steps: i64,
}

impl Default for RecurrentSettings {
    /// The measured shape, without a model.
    fn default() -> Self {
        Self {
            hidden_bytes: 4096,
            exchanges: 4,
            exchange_bandwidth: 448e6,
            local_rate: 1500.0,
            chain_rate: 1400.0,
            dense_rate: 772.0,
            local_bucket_ms: 2.2,
            chain_bucket_ms: 2.2,
            local_segment_ms: 0.005,
            summary_bytes: 4_194_304,
            summary_exchanges: 8,
            summary_bandwidth: 1e10,
            summary_rate: 320.0,
            scan_bucket_ms: 2.8,
            scan_rate: 3.5,
            parent_bytes: 262_144,
            parent_bandwidth: 56e6,
            min_gain_ms: 2.0,
            beam_width: 2,
            branch: 4,
            candidates: 16,
            max_steps: 4,
        }
    }
}

impl RecurrentSettings {
    /// The constants of a layer of this shape. Refuses sizes below 1 and heads that the
    /// tensor-parallel ranks do not divide.
    pub fn from_shape(shape: &Shape) -> Result<Self> {
        let named = [
            ("hidden", shape.hidden),
            ("key_heads", shape.key_heads),
            ("value_heads", shape.value_heads),
            ("key_dim", shape.key_dim),
            ("value_dim", shape.value_dim),
            ("conv", shape.conv),
            ("tp", shape.tp),
        ];
        for (name, value) in named {
            if value < 1 {
                return Err(Error::input(format!(
                    "{name} is {value}: it must be at least 1"
                )));
            }
        }
        for (name, heads) in &named[1..3] {
            if heads % shape.tp != 0 {
                return Err(Error::input(format!(
                    "{name} is {heads}: tp {} must divide it",
                    shape.tp
                )));
            }
        }
        Self::derive(shape).ok_or(Error::Overflow("the state of a gated-delta-net layer"))
    }

    /// `None` where a size leaves 63 bits. The order of the operations is part of the contract.
    fn derive(shape: &Shape) -> Option<Self> {
        let (kh, vh) = (shape.key_heads / shape.tp, shape.value_heads / shape.tp);
        let (dk, dv) = (shape.key_dim, shape.value_dim);
        let (keys, values) = (kh.checked_mul(dk)?, vh.checked_mul(dv)?);
        let both_keys = keys.checked_mul(2)?;
        let state = vh.checked_mul(dk)?.checked_mul(dv)?;
        let summary = vh.checked_mul(dk)?.checked_mul(dv.checked_add(dk)?)?;
        let s = (MEASURED_STATE / state as f64).powf(STATE_EXPONENT);
        let u = (MEASURED_SUMMARY / summary as f64).powf(STATE_EXPONENT);
        let projected = both_keys
            .checked_add(values.checked_mul(2)?)?
            .checked_add(vh.checked_mul(2)?)?
            .checked_add(values)?;
        let flops = 3.0 * 2.0 * shape.hidden as f64 * projected as f64;
        let conv_bytes = both_keys
            .checked_add(values)?
            .checked_mul(shape.conv - 1)?
            .checked_mul(ELEMENT)?;
        Some(Self {
            hidden_bytes: shape.hidden.checked_mul(ELEMENT)?,
            local_rate: 1500.0 * s,
            chain_rate: 1400.0 * s,
            dense_rate: 156e12 / flops * 1e-3,
            summary_bytes: summary.checked_mul(4)?,
            summary_rate: 320.0 * u,
            scan_rate: 3.5 * u,
            parent_bytes: conv_bytes.checked_add(state.checked_mul(4)?)?,
            parent_bandwidth: 458_500_000.0,
            ..Self::default()
        })
    }

    /// Refuses constants that no time can be computed with.
    pub(super) fn check(&self) -> Result<()> {
        for (name, value) in [
            ("exchange_bandwidth", self.exchange_bandwidth),
            ("local_rate", self.local_rate),
            ("chain_rate", self.chain_rate),
            ("dense_rate", self.dense_rate),
            ("summary_bandwidth", self.summary_bandwidth),
            ("summary_rate", self.summary_rate),
            ("scan_rate", self.scan_rate),
            ("parent_bandwidth", self.parent_bandwidth),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return Err(Error::input(format!(
                    "settings.{name} is {value}: it must be a positive number"
                )));
            }
        }
        for (name, value) in [
            ("local_bucket_ms", self.local_bucket_ms),
            ("chain_bucket_ms", self.chain_bucket_ms),
            ("local_segment_ms", self.local_segment_ms),
            ("scan_bucket_ms", self.scan_bucket_ms),
            ("min_gain_ms", self.min_gain_ms),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::input(format!(
                    "settings.{name} is {value}: it must be a number of at least 0"
                )));
            }
        }
        for (name, value) in [
            ("hidden_bytes", self.hidden_bytes),
            ("exchanges", self.exchanges),
            ("summary_bytes", self.summary_bytes),
            ("summary_exchanges", self.summary_exchanges),
            ("parent_bytes", self.parent_bytes),
        ] {
            if value < 0 {
                return Err(Error::input(format!(
                    "settings.{name} is {value}: it must be at least 0"
                )));
            }
        }
        Ok(())
    }

    /// Refuses rows so long that a byte count or a padded work leaves 63 bits.
    pub(super) fn check_sizes(&self, segments: &Segments) -> Result<()> {
        let (tokens, count) = (segments.tokens(), segments.len() as i64);
        let fits = || {
            tokens.checked_mul(count)?;
            tokens
                .checked_mul(self.hidden_bytes)?
                .checked_mul(self.exchanges)?;
            count
                .checked_mul(self.summary_bytes)?
                .checked_mul(self.summary_exchanges)?;
            count.checked_mul(self.parent_bytes)
        };
        match fits() {
            Some(_) => Ok(()),
            None => Err(Error::Overflow("the recurrent work of the packed row")),
        }
    }

    /// What the slowest of `ranks` needs at least: its even share, unpadded. Rounded down a
    /// little, so that no order of additions gets below it.
    pub(super) fn bound(&self, tokens: i64, ranks: usize) -> f64 {
        let share = tokens as f64 / ranks as f64;
        let work = share / self.local_rate.max(self.chain_rate) + share / self.dense_rate;
        work * (1.0 - 1e-12)
    }
}
