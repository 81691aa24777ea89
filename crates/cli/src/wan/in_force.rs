//! The current impairments, with the names and notation of their options.

use nichrome_wan::Impairments;

/// Returns the impairments that differ from the default. Values from files are described instead.
pub(super) fn in_force(of: &Impairments) -> Vec<(&'static str, String)> {
    let nothing = Impairments::default();
    let has_bottleneck = of.rate.is_some() || of.trace.is_some();
    let unless = |is_default: bool, value: &dyn ToString| (!is_default).then(|| value.to_string());
    let trace = of.trace.as_ref().map(|trace| {
        format!("{} lines, {:.2}mbit on average", trace.opportunities(), trace.mean_rate() / 1e6)
    });
    [
        ("delay", unless(of.delay == nothing.delay, &of.delay)),
        ("jitter", of.jitter.as_ref().map(ToString::to_string)),
        ("jitter-order", unless(of.jitter_order == nothing.jitter_order, &of.jitter_order)),
        ("loss", of.loss.as_ref().map(ToString::to_string)),
        ("duplicate", unless(of.duplicate == nothing.duplicate, &of.duplicate)),
        ("corrupt", unless(of.corrupt == nothing.corrupt, &of.corrupt)),
        ("reorder", of.reorder.as_ref().map(ToString::to_string)),
        ("rate", of.rate.as_ref().map(ToString::to_string)),
        ("trace", trace),
        ("queue", has_bottleneck.then(|| of.queue.to_string())),
        ("aqm", has_bottleneck.then(|| of.aqm.to_string())),
        ("ecn", unless(!has_bottleneck || of.ecn == nothing.ecn, &of.ecn)),
        ("mtu", of.mtu.as_ref().map(ToString::to_string)),
        ("limit", unless(of.limit == nothing.limit, &of.limit)),
        ("order", unless(of.order == nothing.order, &of.order)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requested_changes_take_effect() {
        assert_eq!(in_force(&Impairments::default()), []);
        let impairments = Impairments {
            delay: "40ms".parse().unwrap(),
            jitter: Some("normal:2ms".parse().unwrap()),
            loss: Some("1%".parse().unwrap()),
            rate: Some("10mbit".parse().unwrap()),
            ..Impairments::default()
        };
        let values = [
            ("delay", "40ms"),
            ("jitter", "normal:2ms"),
            ("loss", "1%"),
            ("rate", "10mbit"),
            ("queue", "1000p"),
            ("aqm", "tail-drop"),
        ];
        assert_eq!(in_force(&impairments), values.map(|(name, value)| (name, value.to_owned())));
        let trace = Impairments { trace: Some("1\n2\n".parse().unwrap()), ..Impairments::default() };
        assert_eq!(in_force(&trace)[0], ("trace", "2 lines, 12.00mbit on average".to_owned()));
    }
}
