//! The document around a page: its head, its style, its data and its end. The same for reports and comparisons.

use super::super::html::Html;

const STYLE: &str = include_str!("style.css");

/// A whole document. It refers to nothing outside, and its policy forbids whatever it does not hold.
pub(crate) fn document(title: &str, main: &Html, data: Option<(&'static str, &str)>) -> String {
    let mut html = Html::default();
    html.literal("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    html.literal("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.literal("<meta name=\"color-scheme\" content=\"light dark\">\n");
    html.literal(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
    );
    html.leaf("title", &[], title);
    html.literal("\n<style>\n");
    html.literal(STYLE);
    html.literal("</style></head>\n<body>");
    html.element("main", &[], |html| html.push(main));
    html.literal("\n<footer>Written by Sluice's laboratory.");
    if data.is_some() {
        html.literal(" The file holds its own figures as JSON.");
    }
    html.literal("</footer>\n");
    if let Some((id, json)) = data {
        html.data(id, json);
    }
    html.literal("</body></html>\n");
    html.finish()
}

/// A part of a page, left out if there is nothing in it.
pub(crate) fn section(html: &mut Html, id: &'static str, title: &str, body: &Html) {
    if body.is_empty() {
        return;
    }
    html.literal("\n");
    html.element("section", &[("id", &id)], |html| {
        html.leaf("h2", &[], title);
        html.push(body);
    });
}
