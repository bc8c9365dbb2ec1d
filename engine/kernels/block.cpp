#include "block.h"

#include <cstring>

namespace rejoinder {
namespace {

// Queries times keys of all tiles, without scales. Lines are fetched into the second cache: the
// first can wait for too few at a time (a quarter slower).
template <int R>
void multiply_keys(const Work& work, int64_t r0, const Block& block, bool fetch, Ints (&dots)[R][2]) {
    const int64_t quads = work.head_dim / 4;
    const Factors* queries = work.queries.get() + r0 * quads;
    for (int first = 0; first < 2; first += kLinesAtOnce) {
        Products products[R][kLinesAtOnce];
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
            for (int i = 0; i < kLinesAtOnce; ++i) products[r][i] = key_products(work.rows[r0 + r].total);
        const int8_t* tiles[kLinesAtOnce];
        // A tile that is not there is another one's double; nobody sees it.
        for (int i = 0; i < kLinesAtOnce; ++i)
            tiles[i] = block.keys + std::min<int64_t>(first + i, block.num_tiles - 1) * quads * kLineBytes;
        for (int64_t quad = 0; quad < quads; ++quad) {
            KeyLine lines[kLinesAtOnce];
#pragma GCC unroll 2
            for (int i = 0; i < kLinesAtOnce; ++i) {
                lines[i] = load_keys(tiles[i] + quad * kLineBytes);
                if (fetch) _mm_prefetch(block.keys_ahead + ((first * quads) + quad * kLinesAtOnce + i) * kLineBytes, _MM_HINT_T1);
            }
#pragma GCC unroll 6
            for (int r = 0; r < R; ++r) {
                const Factors four = queries[r * quads + quad];
#pragma GCC unroll 2
                for (int i = 0; i < kLinesAtOnce; ++i) add(products[r][i], lines[i], four);
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
            for (int i = 0; i < kLinesAtOnce; ++i) dots[r][first + i] = sum_of(products[r][i]);
    }
}

// Scores of one row → its weights as codes, `kept` and `factors`; `parts` goes on.
void soften(Work& work, int64_t at, const Block& block, const Ints (&dots)[2]) {
    const Row& row = work.rows[at];
    State& state = work.parts[at];
    const Floats none = floats(-INFINITY);
    const Floats zero = floats(0.0f);
    Floats scores[2];
    Lanes seen[2];
    Floats most = none;
    for (int half = 0; half < 2; ++half) {
        const int64_t start = block.first + half * kLanes;
        seen[half] = lanes_between(row.first_kv - start, half < block.num_tiles ? row.num_kv - start : 0);
        const int64_t tile = std::min<int64_t>(half, block.num_tiles - 1);
        // Before they are multiplied: what is not seen may be NaN.
        const Floats scale = select(seen[half], load_halves(block.key_scales + tile * kLanes), zero);
        scores[half] = to_floats(dots[half]) * (scale * floats(row.scale));
        most = max(most, select(seen[half], scores[half], none));
    }
    const float top = std::max(state.top, largest(most));
    if (top == -INFINITY) {  // sees nothing of this block, nor of those before
        work.kept[at] = 1.0f;
        work.factors[at] = 0.0f;
        std::memset(work.weights[at], 0, sizeof work.weights[at]);
        return;
    }
    Floats sum = zero;
    Floats weights[2];
    for (int half = 0; half < 2; ++half) {
        const int64_t tile = std::min<int64_t>(half, block.num_tiles - 1);
        const Floats weight = select(seen[half], exp2(scores[half] - floats(top)), zero);
        sum = sum + weight;
        weights[half] = weight * select(seen[half], load_halves(block.value_scales + tile * kLanes), zero);
    }
    const float heaviest = largest(max(weights[0], weights[1]));
    const Floats factor = floats(heaviest > 0 ? kWeightMax / heaviest : 0.0f);
    for (int half = 0; half < 2; ++half) store_weights(work.weights[at] + half * kLanes / 4, weights[half] * factor);
    float shrunk[kLanes];
    store(shrunk, exp2(floats(state.top - top)));
    const float kept = top == state.top ? 1.0f : shrunk[0];
    state.sum = state.sum * kept + total(sum);
    state.top = top;
    work.kept[at] = kept;
    work.factors[at] = heaviest / kWeightMax;
}

// Adds the block's values to the sums of R rows; N lines of head_dim at a time.
template <int R, int N>
void weigh(Work& work, int64_t r0, const Block& block, int64_t d, bool fetch) {
    const int64_t stride = work.head_dim * 4;
    Products products[R][N];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) products[r][n] = value_products();
    const int8_t* values = block.values + d * 4;
    for (int64_t quad = 0; quad < block.num_tiles * 4; ++quad) {
        ValueLine lines[N];
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
            lines[n] = load_values(values + quad * stride + n * kLineBytes);
            if (fetch) _mm_prefetch(block.values_ahead + d * 4 + quad * stride + n * kLineBytes, _MM_HINT_T1);
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            const Factors four = work.weights[r0 + r][quad];
#pragma GCC unroll 2
            for (int n = 0; n < N; ++n) add(products[r][n], lines[n], four);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
            float* sum = work.sums.get() + (r0 + r) * work.head_dim + d + n * kLanes;
            const Floats older = load(sum) * floats(work.kept[r0 + r]);
            store(sum, fmadd(to_floats(sum_of(products[r][n])), floats(work.factors[r0 + r]), older));
        }
    }
}

template <int R>
void attend_rows(Work& work, int64_t r0, const Block& block) {
    const bool fetch = r0 == 0 && block.keys_ahead != nullptr;
    Ints dots[R][2];
    multiply_keys<R>(work, r0, block, fetch, dots);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) soften(work, r0 + r, block, dots[r]);
    int64_t d = 0;
    for (; d + kLinesAtOnce * kLanes <= work.head_dim; d += kLinesAtOnce * kLanes)
        weigh<R, kLinesAtOnce>(work, r0, block, d, fetch);
    for (; d < work.head_dim; d += kLanes) weigh<R, 1>(work, r0, block, d, fetch);
}

template <int R = kMaxRows>
void attend_some(Work& work, int64_t r0, int64_t rows, const Block& block) {
    if (rows == R) return attend_rows<R>(work, r0, block);
    if constexpr (R > 1) attend_some<R - 1>(work, r0, rows, block);
}

}  // namespace

void attend_block(Work& work, const Block& block) {
    for (int64_t row = 0; row < work.num_rows;) {
        const int64_t left = work.num_rows - row;
        const int64_t num_parts = (left + kMaxRows - 1) / kMaxRows;
        const int64_t rows = (left + num_parts - 1) / num_parts;
        attend_some(work, row, rows, block);
        row += rows;
    }
}

}  // namespace rejoinder
