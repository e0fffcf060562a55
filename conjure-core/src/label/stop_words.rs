//! Words that say nothing of what a text is about.

/// English words that hold sentences together, and what people say to be polite. Sorted.
const STOP_WORDS: [&str; 152] = [
    "a", "about", "above", "after", "again", "all", "also", "am", "an", "and", "any", "are", "as",
    "at", "be", "because", "been", "before", "being", "but", "by", "can", "can't", "could", "did",
    "do", "does", "doing", "don't", "for", "from", "get", "give", "had", "has", "have", "having",
    "he", "hello", "help", "her", "here", "hey", "hi", "him", "his", "how", "i", "i'd", "i'll",
    "i'm", "i've", "if", "in", "into", "is", "isn't", "it", "it's", "its", "just", "kindly", "let",
    "let's", "like", "make", "may", "maybe", "me", "might", "more", "most", "must", "my", "need",
    "no", "not", "now", "of", "off", "ok", "okay", "on", "once", "only", "or", "other", "our",
    "out", "over", "own", "please", "same", "shall", "she", "should", "so", "some", "such", "sure",
    "than", "thank", "thanks", "that", "that's", "the", "their", "them", "then", "there", "these",
    "they", "this", "those", "through", "to", "too", "under", "until", "up", "us", "use", "using",
    "very", "want", "was", "we", "we'd", "we'll", "we're", "were", "what", "what's", "when",
    "where", "which", "while", "who", "whom", "why", "will", "with", "won't", "would", "yes",
    "yet", "you", "you'd", "you'll", "you're", "your", "yours",
];

/// Whether this is one of them, in lower case.
pub(super) fn is_stop_word(word: &str) -> bool {
    let plain = word.replace('’', "'");
    STOP_WORDS.binary_search(&plain.as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(STOP_WORDS.is_sorted());
    }
}
