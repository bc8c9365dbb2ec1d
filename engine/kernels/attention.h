// Attention over INT8 pages.
#pragma once

#include <cstdint>

namespace rejoinder {

// One layer's part of all pages; `page_bytes` from one page to the next. Within a page and head:
// keys [page_tokens / 16][head_dim / 4][16 tokens][4], values [page_tokens / 4][head_dim][4 tokens],
// fp16 scales [num_groups][page_tokens]. Negative key scales
// mark the first key of a sequence: `first_offset` is to be added to it.
struct Pages {
    int8_t* keys;
    int8_t* values;
    uint16_t* key_scales;
    uint16_t* value_scales;
    int64_t page_bytes;
    int64_t page_tokens;   // a multiple of 16
    int64_t num_kv_heads;
    int64_t head_dim;      // a multiple of 16
    int64_t num_groups;    // of channels that share a scale; several: a multiple of 16 each, and
                           // values are turned as keys are
    int64_t window;        // tokens that a query sees, itself included; 0: all
    const float* first_offset;  // [num_kv_heads, head_dim], turned, or null
    int64_t group_dim() const { return head_dim / num_groups; }
};

// As `AttentionSpans`.
struct Spans {
    const int64_t* page_tables;  // [num_seqs, table_width]
    int64_t table_width;
    const int64_t* kv_lens;
    const int64_t* query_starts;
    int64_t num_seqs;
};

// queries and result [num_tokens, num_heads, head_dim]; queries `query_stride` floats apart.
void attend(const float* queries, int64_t query_stride, int64_t num_heads, const Pages& pages,
            const Spans& spans, float* result, int num_threads);

}  // namespace rejoinder
