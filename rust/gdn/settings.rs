//! Constants of the time model of gated-delta-net layers, and of the search over chains.

use crate::error::{Error, Result};
use crate::fields::{at_least, positive, settings};
use crate::segments::Segments;

/// Bytes of an activation element (bf16).
const ELEMENT: i64 = 2;
/// Gdn state of the shape that the rates were measured at: 32 heads of 128 by 128.
const MEASURED_STATE: f64 = 524_288.0;
/// Chain summary of that shape.
const MEASURED_SUMMARY: f64 = 1_048_576.0;
/// Rates grow with the power 3/4 of what a state shrinks.
const STATE_EXPONENT: f64 = 0.75;

settings! {
    /// Sizes of a gated-delta-net layer; heads before tensor parallelism divides them.
    #[derive(Copy, Eq)]
    pub struct Shape as "GdnShape" {
        /// Hidden size of the model.
        hidden: i64, at_least(1);
        /// Key heads.
        key_heads: i64, at_least(1);
        /// Value heads.
        value_heads: i64, at_least(1);
        /// Size of a key head.
        key_dim: i64, at_least(1);
        /// Size of a value head.
        value_dim: i64, at_least(1);
        /// Taps of the convolution.
        conv: i64, at_least(1);
        /// Tensor-parallel ranks.
        tp: i64 = 1, at_least(1);
    }
}

settings! {
    /// Time model of one gated-delta-net layer, forward and backward, and limits of the search.
    /// Rates are tokens or segments per millisecond, bandwidths bytes per millisecond. The
    /// defaults are those of the shape that the rates were measured at; `from_shape` scales them.
    pub struct GdnSettings as "GdnSettings" {
        /// Bytes of one token's hidden state.
        hidden_bytes: i64 = 4096, at_least(0);
        /// Times a moved token crosses (to the layout and back, forward and backward).
        exchanges: i64 = 4, at_least(0);
        /// Bandwidth of the exchange between the layouts.
        exchange_bandwidth: f64 = 448e6, positive();
        /// Gdn tokens of a segment on one rank.
        local_rate: f64 = 1500.0, positive();
        /// Gdn tokens of a chained shard.
        chain_rate: f64 = 1400.0, positive();
        /// Tokens of the projections.
        dense_rate: f64 = 772.0, positive();
        /// Launch of a bucket of owned segments.
        local_bucket_ms: f64 = 2.2, at_least(0);
        /// Launch of a bucket of chained segments.
        chain_bucket_ms: f64 = 2.2, at_least(0);
        /// Launch of one owned segment.
        local_segment_ms: f64 = 0.005, at_least(0);
        /// Bytes of a chained segment's summary.
        summary_bytes: i64 = 4_194_304, at_least(0);
        /// Times a summary crosses.
        summary_exchanges: i64 = 8, at_least(0);
        /// Bandwidth of the summaries.
        summary_bandwidth: f64 = 1e10, positive();
        /// Summaries computed, segments per millisecond.
        summary_rate: f64 = 320.0, positive();
        /// Scan over the ranks, per bucket of chained segments.
        scan_bucket_ms: f64 = 2.8, at_least(0);
        /// Scan over the ranks, segments per millisecond.
        scan_rate: f64 = 3.5, positive();
        /// Bytes of a state handed to a child on another rank.
        parent_bytes: i64 = 262_144, at_least(0);
        /// Bandwidth of handed states.
        parent_bandwidth: f64 = 56e6, positive();
        /// A set of chains replaces the best one only if it saves more than this.
        min_gain_ms: f64 = 2.0, at_least(0);
        /// States of the beam (at least 1 counts).
        beam_width: i64 = 2;
        /// Candidate batches of segments tried from each state (at least 1 counts).
        branch: i64 = 4;
        /// Candidate batches of segments in all (at least 1 counts).
        candidates: i64 = 16;
        /// Steps of the beam.
        max_steps: i64 = 4;
    }
    python {
        /// The settings of a layer of this shape; heads are counted before `tp` divides them.
        #[staticmethod]
        #[pyo3(name = "from_shape", signature = (*sizes, **named))]
        fn py_from_shape(
            sizes: &Bound<'_, pyo3::types::PyTuple>,
            named: Option<&Bound<'_, pyo3::types::PyDict>>,
        ) -> PyResult<Self> {
            Ok(Self::from_shape(&Shape::made(sizes, named)?)?)
        }
    }
}

impl GdnSettings {
    /// The constants of a layer of this shape. Refuses sizes below 1 and heads that the
    /// tensor-parallel ranks do not divide.
    pub fn from_shape(shape: &Shape) -> Result<Self> {
        shape.check()?;
        for (name, heads) in [
            ("key_heads", shape.key_heads),
            ("value_heads", shape.value_heads),
        ] {
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

    /// Refuses packs so long that a byte count or a padded work leaves 63 bits.
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
            None => Err(Error::Overflow("the gdn work of the pack")),
        }
    }

    /// The least time of the slowest of `ranks`: its even share, unpadded. Rounded down a
    /// little, so that no order of additions gets below it.
    pub(super) fn bound(&self, tokens: i64, ranks: usize) -> f64 {
        let share = tokens as f64 / ranks as f64;
        let work = share / self.local_rate.max(self.chain_rate) + share / self.dense_rate;
        work * (1.0 - 1e-12)
    }
}
