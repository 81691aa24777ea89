//! All figures and claims as one HTML page that refers to nothing else.

use std::fmt::Write;

use super::plot;
use super::report::Report;
use super::series::{Figure, Series};
use super::table::{at, estimate, label, number, places, quantities};

const STYLE: &str = "body{font:15px/1.5 sans-serif;color:#333;max-width:1280px;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ddd;padding:.2em .6em;text-align:right}\
td.text,th.text{text-align:left}svg{max-width:100%;height:auto}.holds{color:#4d7c0f}.does-not-hold{color:#c2410c}\
.cannot-be-shown{color:#777}";

/// The page.
pub(super) fn page(report: &Report) -> anyhow::Result<String> {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>RDMA over IP</title><style>{STYLE}</style></head>\
         <body>\n<h1>RDMA over IP and sockets</h1>\n<p>{}</p>\n",
        escaped(&report.machine.to_string())
    );
    claims(&mut page, report)?;
    for figure in &report.figures {
        section(&mut page, figure)?;
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

fn claims(page: &mut String, report: &Report) -> anyhow::Result<()> {
    page.push_str(
        "<h2>Claims</h2>\n<table><tr><th>claim</th><th>figure</th><th class=\"text\">statement</th>",
    );
    page.push_str("<th class=\"text\">transport</th><th class=\"text\">verdict</th><th class=\"text\">reason</th></tr>\n");
    for claim in &report.claims {
        for judgement in &claim.transports {
            let verdict = judgement.verdict.to_string();
            writeln!(
                page,
                "<tr><td>{}</td><td>{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td>\
                 <td class=\"text {}\">{verdict}</td><td class=\"text\">{}</td></tr>",
                claim.claim,
                claim.figure,
                escaped(claim.statement),
                judgement.transport.name(),
                verdict.replace(' ', "-"),
                escaped(&judgement.reason)
            )?;
        }
    }
    page.push_str("</table>\n");
    Ok(())
}

fn section(page: &mut String, figure: &Figure) -> anyhow::Result<()> {
    let Figure { name, paper, title, rounds, .. } = figure;
    writeln!(
        page,
        "<h2>{name}: {}</h2>\n<p>Figure {paper}; medians of {rounds} rounds with half of their range.</p>",
        escaped(title)
    )?;
    let svg = plot::draw(figure)?;
    // A declaration of XML has no place within HTML.
    page.push_str(svg.find("<svg").map_or("", |start| &svg[start..]));
    for note in &figure.notes {
        writeln!(page, "<p>{}</p>", escaped(note))?;
    }
    for quantity in quantities(figure) {
        let series: Vec<&Series> = figure.series.iter().filter(|of| of.quantity == quantity).collect();
        write!(page, "<table><caption>{quantity}</caption><tr><th>{}</th>", figure.x.quantity)?;
        for of in &series {
            write!(page, "<th>{}</th>", label(of))?;
        }
        page.push_str("</tr>\n");
        for place in places(&series) {
            write!(page, "<tr><td>{}</td>", number(place))?;
            for of in &series {
                write!(page, "<td>{}</td>", at(of, place).map_or_else(|| "–".to_owned(), estimate))?;
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</table>\n");
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
