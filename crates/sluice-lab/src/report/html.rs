//! Markup that nobody can forge: tags and attribute names are literals of the program, and whatever else goes in, as
//! text or as an attribute's value, is escaped on its way.
//!
//! It knows nothing of what the pages say, and nothing of nesting: who opens an element closes it.

use std::fmt::{self, Display, Write as _};

/// A piece of a page, of HTML or of SVG inside it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Html(String);

/// Names and values; values are escaped.
pub(crate) type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

impl Html {
    /// Opens an element.
    pub(crate) fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.begin(tag, attributes);
        self.0.push('>');
    }

    /// Closes the element that was opened last.
    pub(crate) fn close(&mut self, tag: &'static str) {
        self.0.extend(["</", tag, ">"]);
    }

    /// An element with something inside.
    pub(crate) fn element(&mut self, tag: &'static str, attributes: Attributes<'_>, inside: impl FnOnce(&mut Self)) {
        self.open(tag, attributes);
        inside(self);
        self.close(tag);
    }

    /// An element with text inside.
    pub(crate) fn leaf(&mut self, tag: &'static str, attributes: Attributes<'_>, text: impl Display) {
        self.element(tag, attributes, |html| html.text(text));
    }

    /// An element that holds nothing.
    pub(crate) fn void(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.begin(tag, attributes);
        self.0.push_str("/>");
    }

    /// Text, escaped.
    pub(crate) fn text(&mut self, text: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(Escaping(&mut self.0), "{text}");
    }

    /// Markup or a style sheet of the program itself.
    pub(crate) fn literal(&mut self, markup: &'static str) {
        self.0.push_str(markup);
    }

    /// Another piece.
    pub(crate) fn push(&mut self, piece: &Self) {
        self.0.push_str(&piece.0);
    }

    /// JSON for programs, in an element of the name `id`. Nothing in it can end the element.
    pub(crate) fn data(&mut self, id: &'static str, json: &str) {
        self.open("script", &[("type", &"application/json"), ("id", &id)]);
        for character in json.chars() {
            match character {
                '<' => self.0.push_str("\\u003c"),
                '>' => self.0.push_str("\\u003e"),
                '&' => self.0.push_str("\\u0026"),
                other => self.0.push(other),
            }
        }
        self.close("script");
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The markup.
    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn begin(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.0.extend(["<", tag]);
        for (name, value) in attributes {
            self.0.extend([" ", name, "=\""]);
            self.text(value);
            self.0.push('"');
        }
    }
}

/// Text for between tags and for values of attributes.
pub(crate) fn escaped(text: &str) -> String {
    let mut html = Html::default();
    html.text(text);
    html.finish()
}

/// Escapes what is written to it.
struct Escaping<'a>(&'a mut String);

impl fmt::Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Nothing that a page may hold.
                other if other.is_control() && !matches!(other, '\n' | '\t') => self.0.push(' '),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_values_are_escaped() {
        let mut html = Html::default();
        html.leaf("p", &[("title", &"\"><script>"), ("data-n", &1.5)], "a < b & 'c'");
        html.void("br", &[]);
        assert_eq!(
            html.finish(),
            "<p title=\"&quot;&gt;&lt;script&gt;\" data-n=\"1.5\">a &lt; b &amp; &#39;c&#39;</p><br/>"
        );
    }

    #[test]
    fn words_from_outside_stay_words() {
        assert_eq!(escaped("<script>\"a\" & 'b'\u{1}"), "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39; ");
    }

    #[test]
    fn json_can_not_end_its_element() {
        let json = serde_json::json!({ "text": "</script><!-- <script> & ]]>" }).to_string();
        let mut html = Html::default();
        html.data("result", &json);
        let page = html.finish();
        let inside = page.trim_start_matches("<script type=\"application/json\" id=\"result\">");
        let inside = inside.trim_end_matches("</script>");
        assert!(!inside.contains(['<', '>', '&']), "{inside}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(inside).expect("JSON").to_string(), json);
    }
}
