#include "linear.h"

#include "phases.h"

namespace rejoinder {
namespace {

constexpr int64_t kBlockRows = 64;  // whose inputs stay in the second cache while all tiles pass
constexpr int kBytesAhead = 2304;  // of the weights that are fetched meanwhile (Zen 3: 13 GB/s of 15, without 9)

// The inputs of some tokens for one layer: groups, then for each loud one a group of low bytes.
template <typename Codes>
struct Inputs {
    using Group = InputGroup<typename Codes::Four>;
    static constexpr bool kHasLow = Codes::kHasLow;
    const Group* groups;
    int64_t stride;

    static int64_t row_groups(const LinearWeights& weights) {
        return weights.num_groups() + (kHasLow ? weights.num_loud : 0);
    }
    static Inputs of(const LinearWeights& weights, const std::byte* rounded) {
        return {reinterpret_cast<const Group*>(rounded), row_groups(weights)};
    }
    const Group& at(int64_t row, int64_t group) const { return groups[row * stride + group]; }
};

// One group of R rows and one step of lines (see simd.h), times 1 or, of high bytes, 256.
template <typename Codes, int R, bool kFetch>
inline void multiply_group(const WeightBlock<Codes>& block, int line, const Inputs<Codes>& inputs, int64_t group,
                           int factor, Ints (&products)[R][kLinesAtOnce]) {
    const auto* rows = anew(inputs.groups + group);
    const auto* codes = anew(&block.codes[line]);
    typename Codes::Sums sums[R][kLinesAtOnce];
    each<kGroupQuads / Codes::kLineQuads>([&](auto at) {
        typename Codes::Line lines[kLinesAtOnce];
        each<kLinesAtOnce>([&](auto i) {
            const uint8_t* from = codes[i][at];
            if constexpr (kFetch) _mm_prefetch(reinterpret_cast<const char*>(from) + kBytesAhead, _MM_HINT_T0);
            lines[i] = Codes::load(from);
        });
        each<Codes::kLineQuads>([&](auto within) {
            constexpr int kWithin = decltype(within)::value;
            constexpr int kQuad = decltype(at)::value * Codes::kLineQuads + kWithin;
            typename Codes::Quad quads[kLinesAtOnce];
            each<kLinesAtOnce>([&](auto i) { quads[i] = Codes::template quad<kWithin>(lines[i]); });
            each<R>([&](auto r) {
                const auto four = spread(rows[r * inputs.stride].codes[kQuad]);
                each<kLinesAtOnce>([&](auto i) { add<kQuad == 0>(sums[r][i], quads[i], four); });
            });
        });
    });
    each<R>([&](auto r) { each<kLinesAtOnce>([&](auto i) { products[r][i] = sum_of(sums[r][i], factor); }); });
}

// All groups of one tile.
template <typename Codes, int R, bool kFetch>
inline void multiply_rows(const LinearWeights& weights, const WeightBlock<Codes>* blocks, const Inputs<Codes>& inputs,
                          Floats (&sums)[R][kTileLines]) {
    const int64_t num_groups = weights.num_groups();
    for (auto& row : sums)
        for (Floats& sum : row) sum = floats(0.0f);
    int64_t low = num_groups;
    for (int64_t group = 0; group < num_groups; ++group) {
        const WeightBlock<Codes>& block = blocks[group];
        const bool is_loud = Codes::kHasLow && low < inputs.stride && weights.loud[low - num_groups] == group;
        for (int line = 0; line < kTileLines; line += kLinesAtOnce) {
            Ints products[R][kLinesAtOnce];
            multiply_group<Codes, R, kFetch>(block, line, inputs, group, is_loud ? 256 : 1, products);
            if (is_loud) {
                Ints rest[R][kLinesAtOnce];
                multiply_group<Codes, R, false>(block, line, inputs, low, 1, rest);
                each<R>([&](auto r) {
                    each<kLinesAtOnce>([&](auto i) { products[r][i] = products[r][i] + rest[r][i]; });
                });
            }
            each<kLinesAtOnce>([&](auto i) {
                const Floats scale = load_halves(block.scales + (line + i) * kLanes);
                const Floats minimum = load_halves(block.minima + (line + i) * kLanes);
                each<R>([&](auto r) {
                    const auto& input = inputs.at(r, group);
                    Floats& sum = sums[r][line + i];
                    sum = fmadd(minimum, floats(input.total), sum);
                    sum = fmadd(to_floats(products[r][i]), scale * floats(input.scale), sum);
                });
            });
        }
        low += is_loud;
    }
}

// Flat: sums that are handed to a function that is called lie in memory.
template <typename Codes, int R, bool kFetch>
[[gnu::flatten]] void multiply_tile(const LinearWeights& weights, int64_t tile, const Inputs<Codes>& inputs, float* y, bool add) {
    Floats sums[R][kTileLines];
    const auto* blocks = static_cast<const WeightBlock<Codes>*>(weights.blocks);
    multiply_rows<Codes, R, kFetch>(weights, blocks + tile * weights.num_groups(), inputs, sums);
    const auto finish = [&](int line, int64_t at, auto lanes) {
        const Floats bias = weights.bias ? load(lanes, weights.bias + at) : floats(0.0f);
        for (int r = 0; r < R; ++r) {
            float* to = y + r * weights.num_outputs + at;
            Floats sum = sums[r][line] + bias;
            if (add) sum = sum + load(lanes, to);
            store(lanes, to, sum);
        }
    };
    for (int line = 0; line < kTileLines; ++line) {
        const int64_t at = tile * kTileOutputs + line * kLanes;
        if (at + kLanes <= weights.num_outputs)
            finish(line, at, AllLanes{});
        else
            finish(line, at, first_lanes(weights.num_outputs - at));
    }
}

template <typename Codes, bool kFetch, int R = kMostRows>
void multiply_some(const LinearWeights& weights, int64_t tile, const Inputs<Codes>& inputs, int64_t rows, float* y,
                   bool add) {
    if (rows == R) return multiply_tile<Codes, R, kFetch>(weights, tile, inputs, y, add);
    if constexpr (R > 1) multiply_some<Codes, kFetch, R - 1>(weights, tile, inputs, rows, y, add);
}

// A tile stays in the nearest cache while all rows pass, some at a time; the first fetch it.
template <typename Codes>
void multiply_all_rows(const LinearWeights& weights, int64_t tile, const Inputs<Codes>& inputs, int64_t num_rows,
                       float* y, bool add) {
    const int64_t most = num_rows <= kMostRows ? kMostRows : kRows;
    for (int64_t row = 0; row < num_rows;) {
        const int64_t left = num_rows - row;
        const int64_t num_parts = (left + most - 1) / most;
        const int64_t rows = (left + num_parts - 1) / num_parts;
        const Inputs<Codes> from{inputs.groups + row * inputs.stride, inputs.stride};
        float* to = y + row * weights.num_outputs;
        if (row == 0)
            multiply_some<Codes, true>(weights, tile, from, rows, to, add);
        else
            multiply_some<Codes, false>(weights, tile, from, rows, to, add);
        row += rows;
    }
}

template <typename Codes>
void multiply_tiles(const LinearWeights& weights, const std::byte* rounded, int64_t num_rows, float* y, bool add,
                    int num_threads) {
    const auto inputs = Inputs<Codes>::of(weights, rounded);
    const int64_t num_tiles = (weights.num_outputs + kTileOutputs - 1) / kTileOutputs;
    for (int64_t row = 0; row < num_rows; row += kBlockRows) {
        const Inputs<Codes> from{inputs.groups + row * inputs.stride, inputs.stride};
        const int64_t rows = std::min(kBlockRows, num_rows - row);
        float* to = y + row * weights.num_outputs;
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1)
        for (int64_t tile = 0; tile < num_tiles; ++tile) multiply_all_rows(weights, tile, from, rows, to, add);
    }
}

// Half a group each: codes up to `most`, and what one is worth.
struct Rounded {
    Ints low, high;
    float scale;
};

Rounded round_group(Floats low, Floats high, float most) {
    const float amax = largest(max(abs(low), abs(high)));
    const Floats factor = floats(amax > 0 ? most / amax : 0.0f);
    return {to_ints(low * factor), to_ints(high * factor), amax / most};
}

template <typename Group>
void store_codes(const Rounded& codes, Group& group, Group* low) {
    constexpr int kHalf = kLanes / 4;
    if constexpr (std::is_same_v<decltype(group.codes[0]), int32_t&>) {
        if (low) {
            store_wide(group.codes, low->codes, codes.low);
            store_wide(group.codes + kHalf, low->codes + kHalf, codes.high);
            return;
        }
    }
    store_inputs(group.codes, codes.low);
    store_inputs(group.codes + kHalf, codes.high);
}

template <typename Codes>
void round_for(const LinearWeights& weights, const float* x, std::byte* rounded) {
    using Group = typename Inputs<Codes>::Group;
    Group* groups = reinterpret_cast<Group*>(rounded);
    const int64_t num_groups = weights.num_groups();
    int64_t next = 0;
    const auto round = [&](int64_t at, Floats low, Floats high) {
        Group& group = groups[at];
        const bool is_loud = Codes::kHasLow && next < weights.num_loud && weights.loud[next] == at;
        const Rounded codes = round_group(low, high, is_loud ? kWideMax : Codes::kInputMax);
        store_codes(codes, group, is_loud ? &groups[num_groups + next] : nullptr);
        next += is_loud;
        group.scale = codes.scale;
        group.total = codes.scale * static_cast<float>(total(codes.low + codes.high));
    };
    const int64_t num_whole = weights.num_inputs / kGroup;
    for (int64_t at = 0; at < num_whole; ++at) round(at, load(x + at * kGroup), load(x + at * kGroup + kLanes));
    if (num_whole == num_groups) return;
    const int64_t first = num_whole * kGroup;
    const auto rest = [&](int64_t at) { return load(first_lanes(weights.num_inputs - at), x + at); };
    round(num_whole, rest(first), rest(first + kLanes));
}

}  // namespace

int64_t LinearWeights::input_bytes() const {
    return bits == 4 ? Inputs<Nibbles>::row_groups(*this) * sizeof(Inputs<Nibbles>::Group)
                     : Inputs<Bytes>::row_groups(*this) * sizeof(Inputs<Bytes>::Group);
}

void round_inputs(const LinearWeights& weights, const float* x, std::byte* rounded) {
    if (weights.bits == 4) return round_for<Nibbles>(weights, x, rounded);
    round_for<Bytes>(weights, x, rounded);
}

void multiply(const LinearWeights& weights, const std::byte* rounded, int64_t num_rows, float* y, bool add,
              int num_threads) {
    const Timed timed(phase_times.linear_ns);
    if (weights.bits == 4) return multiply_tiles<Nibbles>(weights, rounded, num_rows, y, add, num_threads);
    multiply_tiles<Bytes>(weights, rounded, num_rows, y, add, num_threads);
}

}  // namespace rejoinder

// x [num_rows, num_inputs] → y [num_rows, num_outputs]
extern "C" void rejoinder_linear(const rejoinder::LinearWeights* weights, const float* x,
                                 int64_t num_rows, float* y, int64_t num_threads) {
    using namespace rejoinder;
    const int64_t input_bytes = weights->input_bytes();
    auto rounded = buffer<std::byte>(num_rows * input_bytes);
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1 && num_rows > 8)
    for (int64_t row = 0; row < num_rows; ++row)
        round_inputs(*weights, x + row * weights->num_inputs, rounded.get() + row * input_bytes);
    multiply(*weights, rounded.get(), num_rows, y, false, static_cast<int>(num_threads));
}
