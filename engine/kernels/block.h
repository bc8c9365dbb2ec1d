// Attention of some queries to up to 32 tokens of one page: scores, softmax so far, values.
#pragma once

#include "attention.h"
#include "simd.h"

namespace rejoinder {

constexpr int64_t kBlock = 32;     // tokens that are scored together
constexpr int64_t kTaskRows = 48;  // rows that pass over the pages together

// A query of one head.
struct Row {
    float scale;      // of its codes, with 1 / sqrt(head_dim) and the base of exp2 folded in
    int64_t first_kv; // tokens that it sees: from this one on,
    int64_t num_kv;   // before this one
    float first;      // what the score of a marked key lacks, likewise scaled
};

// Running softmax of one row: sum of 2^(score - top) and of the values weighted with it.
struct State {
    float top;
    float sum;
};

// Everything one task works with; arrays by row.
struct Work {
    int64_t num_rows;
    int64_t head_dim;
    int64_t num_groups;
    Row rows[kTaskRows];
    State states[kTaskRows];
    State parts[kTaskRows];
    Buffer<Factors> queries;  // [num_rows, head_dim / 4]
    Buffer<float> totals;     // [num_rows, head_dim], over all splits so far
    Buffer<float> sums;       // [num_rows, head_dim], of the split at hand
    Buffer<int32_t> code_sums;  // [num_rows, num_groups], of the queries' codes
    Buffer<Factors> weights;    // [num_rows, num_groups, kBlock / 4]
    Buffer<float> factors;      // [num_rows, num_groups], of the weights' codes
    float kept[kTaskRows];      // what the older sums are multiplied with

    Work(int64_t rows, const Pages& pages)
        : num_rows(rows), head_dim(pages.head_dim), num_groups(pages.num_groups),
          queries(buffer<Factors>(rows * head_dim / 4)), totals(buffer<float>(rows * head_dim)),
          sums(buffer<float>(rows * head_dim)), code_sums(buffer<int32_t>(rows * num_groups)),
          weights(buffer<Factors>(rows * num_groups * kBlock / 4)), factors(buffer<float>(rows * num_groups)) {}
};

struct Block {
    const int8_t* keys;      // first of its tiles of 16
    const int8_t* values;
    const uint16_t* key_scales;    // of the first group
    const uint16_t* value_scales;
    int64_t scales_stride;         // from group to group
    const char* keys_ahead;  // the same block of a later page, or null
    const char* values_ahead;
    int64_t first;           // position of its first token
    int64_t num_tiles;       // 1 or 2
    bool is_marked;          // the first key of a sequence may be among them
};

// `parts` and `sums` of all rows take the block in.
void attend_block(Work& work, const Block& block);

}  // namespace rejoinder
