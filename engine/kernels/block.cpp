#include "block.h"

#include <cstring>

namespace rejoinder {
namespace {

// Adds queries times keys of one group of channels and all tiles, times the keys' scales. Lines are
// fetched into the second cache: the first can wait for too few at a time (a quarter slower).
template <int R>
[[gnu::flatten]] void multiply_keys(const Work& work, int64_t r0, const Block& block, int64_t group, bool fetch,
                                    Floats (&scores)[R][2]) {
    const int64_t all_quads = work.head_dim / 4;
    const int64_t quads = all_quads / work.num_groups;
    const Factors* queries = work.queries.get() + r0 * all_quads + group * quads;
    // A tile that is not there is another one's double; nobody sees it.
    const auto tile = [&](int64_t index) { return std::min(index, block.num_tiles - 1); };
    for (int first = 0; first < 2; first += kLinesAtOnce) {
        Products products[R][kLinesAtOnce];
        each<R>([&](auto r) {
            each<kLinesAtOnce>([&](auto i) {
                products[r][i] = key_products(work.code_sums[(r0 + r) * work.num_groups + group]);
            });
        });
        const int8_t* tiles[kLinesAtOnce];
        each<kLinesAtOnce>([&](auto i) {
            tiles[i] = block.keys + (tile(first + i) * all_quads + group * quads) * kLineBytes;
        });
        const char* ahead = block.keys_ahead + (2 * group + first) * quads * kLineBytes;
        for (int64_t quad = 0; quad < quads; ++quad) {
            KeyLine lines[kLinesAtOnce];
            each<kLinesAtOnce>([&](auto i) {
                lines[i] = load_keys(tiles[i] + quad * kLineBytes);
                if (fetch) _mm_prefetch(ahead + (quad * kLinesAtOnce + i) * kLineBytes, _MM_HINT_T1);
            });
            each<R>([&](auto r) {
                const Factors& four = queries[r * all_quads + quad];
                each<kLinesAtOnce>([&](auto i) { add(products[r][i], lines[i], four); });
            });
        }
        each<kLinesAtOnce>([&](auto i) {
            // May be NaN where nobody sees it: lanes do not mix.
            const Floats scale =
                abs(load_halves(block.key_scales + group * block.scales_stride + tile(first + i) * kLanes));
            each<R>([&](auto r) {
                scores[r][first + i] = fmadd(to_floats(sum_of(products[r][i])), scale, scores[r][first + i]);
            });
        });
    }
}

// The weights of one row times the scales of one group of value channels, as codes.
void store_group(Work& work, int64_t at, int64_t group, const Block& block, const Lanes (&seen)[2], const Floats (&weights)[2]) {
    const Floats zero = floats(0.0f);
    Floats scaled[2];
    for (int half = 0; half < 2; ++half) {
        const int64_t tile = std::min<int64_t>(half, block.num_tiles - 1);
        const Floats scale = load_halves(block.value_scales + group * block.scales_stride + tile * kLanes);
        scaled[half] = weights[half] * select(seen[half], scale, zero);
    }
    const float heaviest = largest(max(scaled[0], scaled[1]));
    const Floats factor = floats(heaviest > 0 ? kWeightMax / heaviest : 0.0f);
    const int64_t index = at * work.num_groups + group;
    Factors* codes = work.weights.get() + index * kBlock / 4;
    for (int half = 0; half < 2; ++half) store_weights(codes + half * kLanes / 4, scaled[half] * factor);
    work.factors[index] = heaviest / kWeightMax;
}

// Scores of one row, `scale` not yet in them → its weights as codes and `kept`; `parts` goes on.
void soften(Work& work, int64_t at, const Block& block, const Floats (&dots)[2]) {
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
        scores[half] = dots[half] * floats(row.scale);
        if (block.is_marked) {
            const int64_t tile = std::min<int64_t>(half, block.num_tiles - 1);
            const Lanes firsts = is_signed(load_halves(block.key_scales + tile * kLanes));
            scores[half] = select(firsts, scores[half] + floats(row.first), scores[half]);
        }
        scores[half] = select(seen[half], scores[half], none);
        most = max(most, scores[half]);
    }
    const float top = std::max(state.top, largest(most));
    if (top == -INFINITY) {  // sees nothing of this block, nor of those before
        work.kept[at] = 1.0f;
        std::fill_n(work.factors.get() + at * work.num_groups, work.num_groups, 0.0f);
        std::memset(static_cast<void*>(work.weights.get() + at * work.num_groups * kBlock / 4), 0,
                    work.num_groups * kBlock / 4 * sizeof(Factors));
        return;
    }
    Floats weights[2];
    for (int half = 0; half < 2; ++half) weights[half] = select(seen[half], exp2(scores[half] - floats(top)), zero);
    for (int64_t group = 0; group < work.num_groups; ++group) store_group(work, at, group, block, seen, weights);
    float shrunk[kLanes];
    store(shrunk, exp2(floats(state.top - top)));
    const float kept = top == state.top ? 1.0f : shrunk[0];
    state.sum = state.sum * kept + total(weights[0] + weights[1]);
    state.top = top;
    work.kept[at] = kept;
}

// Adds the block's values to the sums of R rows; N lines of head_dim at a time.
template <int R, int N>
[[gnu::flatten]] void weigh(Work& work, int64_t r0, const Block& block, int64_t d, bool fetch) {
    const int64_t stride = work.head_dim * 4;
    Products products[R][N];
    each<R>([&](auto r) { each<N>([&](auto n) { products[r][n] = value_products(); }); });
    const int64_t group = d * work.num_groups / work.head_dim;
    const int8_t* values = block.values + d * 4;
    const char* ahead = block.values_ahead + d * 4;
    const Factors* weights = work.weights.get() + (r0 * work.num_groups + group) * kBlock / 4;
    for (int64_t quad = 0; quad < block.num_tiles * 4; ++quad) {
        ValueLine lines[N];
        each<N>([&](auto n) {
            lines[n] = load_values(values + quad * stride + n * kLineBytes);
            if (fetch) _mm_prefetch(ahead + quad * stride + n * kLineBytes, _MM_HINT_T1);
        });
        each<R>([&](auto r) {
            const Factors& four = weights[r * work.num_groups * kBlock / 4 + quad];
            each<N>([&](auto n) { add(products[r][n], lines[n], four); });
        });
    }
    each<R>([&](auto r) {
        const Floats factor = floats(work.factors[(r0 + r) * work.num_groups + group]);
        each<N>([&](auto n) {
            float* sum = work.sums.get() + (r0 + r) * work.head_dim + d + n * kLanes;
            const Floats older = load(sum) * floats(work.kept[r0 + r]);
            store(sum, fmadd(to_floats(sum_of(products[r][n])), factor, older));
        });
    });
}

template <int R>
void attend_rows(Work& work, int64_t r0, const Block& block) {
    const bool fetch = r0 == 0 && block.keys_ahead != nullptr;
    Floats scores[R][2];
    for (auto& row : scores) row[0] = row[1] = floats(0.0f);
    for (int64_t group = 0; group < work.num_groups; ++group) multiply_keys<R>(work, r0, block, group, fetch, scores);
    for (int r = 0; r < R; ++r) soften(work, r0 + r, block, scores[r]);
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
