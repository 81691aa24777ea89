//! The memory that the engines of a card reserve for aggregates.

use nichrome_lro::{Config, NpuConfig};

use crate::experiment::RunError;

/// Bytes that an engine reserves for each aggregate (nichrome_lro::Config).
const AGGREGATE: u64 = 760;
/// Bytes for each segment of an aggregate.
const SEGMENT: u64 = 8 + size_of::<Vec<u8>>() as u64;
/// Bytes for each segment that `npu` holds behind a gap.
const WAITING: u64 = 96 + SEGMENT;
/// Maximum bytes that the engines of a card may reserve.
const MAX_RESERVED: u64 = 4 << 30;

/// Checks that `engines` engines of this configuration do not reserve too much. The error message says that
/// `holders` hold aggregates of `segments`.
///
/// # Errors
/// The engines would reserve more than [`MAX_RESERVED`] bytes.
pub(crate) fn check(
    engines: usize,
    config: &Config,
    npu: Option<&NpuConfig>,
    holders: &str,
    segments: &str,
) -> Result<(), RunError> {
    let [aggregates, places, connections] =
        [config.max_aggregates, config.max_segments, config.max_connections].map(|number| number as u64);
    // npu has a list of waiting segments for every eight connections that hold aggregates.
    let lists = aggregates.min(connections).div_ceil(8);
    let waiting = npu.map_or(0, |npu| lists * npu.reorder_segments as u64);
    let engines = engines as u64;
    let reserved = engines * (aggregates * (AGGREGATE + places * SEGMENT) + waiting * WAITING);
    if reserved > MAX_RESERVED {
        let aggregates = engines * aggregates;
        return Err(RunError::Impossible(format!(
            "{holders} hold up to {aggregates} aggregates of {segments}, for which {reserved} bytes are reserved: at most \
             {MAX_RESERVED} may be"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_engines_and_the_segments_behind_gaps_count() {
        let config = Config { max_connections: 40_000, max_aggregates: 40_000, ..Config::default() };
        let [safe, paper] = [NpuConfig::default(), NpuConfig::paper()];
        let is_refused = |engines, npu| check(engines, &config, npu, "threads", "128 segments").is_err();
        // Each engine reserves 194 MB for aggregates, and for segments behind gaps 164 MB by the safe rules
        // or 655 MB by the paper's.
        assert_eq!([is_refused(22, None), is_refused(23, None)], [false, true]);
        assert_eq!([is_refused(11, Some(&safe)), is_refused(12, Some(&safe))], [false, true]);
        assert_eq!([is_refused(5, Some(&paper)), is_refused(6, Some(&paper))], [false, true]);
    }
}
