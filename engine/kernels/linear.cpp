#include "linear.h"

#include "phases.h"

namespace rejoinder {
namespace {

// `kAhead`: fetch the next tile's weights meanwhile. Where a tile is read once, the hardware sees
// one long stream and does better alone.
template <int R, bool kAhead>
inline void multiply_rows(const LinearWeights& weights, const WeightBlock* blocks, const InputGroup* inputs,
                          Floats (&sums)[R][2]) {
    const int64_t num_groups = weights.num_groups();
    const int64_t stride = weights.num_input_groups();
    for (auto& row : sums) row[0] = row[1] = floats(0.0f);
    for (int64_t group = 0; group < stride; ++group) {
        const WeightBlock& block = blocks[group < num_groups ? group : weights.loud[group - num_groups]];
        for (int first = 0; first < 2; first += kLinesAtOnce) {
            const uint8_t* codes = block.codes + first * kLineBytes;
            ByteProducts products[R][kLinesAtOnce];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r)
                for (int i = 0; i < kLinesAtOnce; ++i) products[r][i] = byte_products();
#pragma GCC unroll 8
            for (int quad = 0; quad < kGroup / 4; ++quad, codes += 2 * kLineBytes) {
                WeightLine lines[kLinesAtOnce];
#pragma GCC unroll 2
                for (int i = 0; i < kLinesAtOnce; ++i) {
                    lines[i] = load_weights(codes + i * kLineBytes);
                    if constexpr (kAhead) {
                        const char* next = reinterpret_cast<const char*>(codes + num_groups * sizeof(WeightBlock));
                        _mm_prefetch(next + i * kLineBytes, _MM_HINT_T0);
                    }
                }
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) {
                    const FourInputs& four = inputs[r * stride + group].codes[quad];
#pragma GCC unroll 2
                    for (int i = 0; i < kLinesAtOnce; ++i) add(products[r][i], lines[i], four);
                }
            }
#pragma GCC unroll 2
            for (int i = 0; i < kLinesAtOnce; ++i) {
                const int half = first + i;
                const Floats scale = load_halves(block.scales + half * kLanes);
                const Floats minimum = load_halves(block.minima + half * kLanes);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) {
                    const InputGroup& input = inputs[r * stride + group];
                    const Floats factor = scale * floats(input.scale);
                    const Floats sum = fmadd(minimum, floats(input.total), sums[r][half]);
                    sums[r][half] = fmadd(to_floats(sum_of(products[r][i])), factor, sum);
                }
            }
        }
    }
}

template <int R, bool kAhead>
void multiply_tile(const LinearWeights& weights, int64_t tile, const InputGroup* inputs, float* y, bool add) {
    Floats sums[R][2];
    multiply_rows<R, kAhead>(weights, weights.blocks + tile * weights.num_groups(), inputs, sums);
    for (int half = 0; half < 2; ++half) {
        const int64_t at = tile * kTileOutputs + half * kLanes;
        const Lanes lanes = first_lanes(weights.num_outputs - at);
        const Floats bias = weights.bias ? load(lanes, weights.bias + at) : floats(0.0f);
        for (int r = 0; r < R; ++r) {
            float* to = y + r * weights.num_outputs + at;
            Floats sum = sums[r][half] + bias;
            if (add) sum = sum + load(lanes, to);
            store(lanes, to, sum);
        }
    }
}

template <bool kAhead, int R = kMostRows>
void multiply_block(const LinearWeights& weights, int64_t tile, const InputGroup* inputs, int64_t rows,
                    float* y, bool add) {
    if (rows == R) return multiply_tile<R, kAhead>(weights, tile, inputs, y, add);
    if constexpr (R > 1) multiply_block<kAhead, R - 1>(weights, tile, inputs, rows, y, add);
}

void multiply_all_rows(const LinearWeights& weights, int64_t tile, const InputGroup* inputs,
                       int64_t num_rows, float* y, bool add) {
    if (num_rows <= kMostRows) return multiply_block<false>(weights, tile, inputs, num_rows, y, add);
    for (int64_t row = 0; row < num_rows;) {
        const int64_t left = num_rows - row;
        const int64_t num_blocks = (left + kRows - 1) / kRows;
        const int64_t rows = (left + num_blocks - 1) / num_blocks;
        const InputGroup* from = inputs + row * weights.num_input_groups();
        float* to = y + row * weights.num_outputs;
        if (num_blocks == 1)
            multiply_block<true>(weights, tile, from, rows, to, add);
        else
            multiply_block<false>(weights, tile, from, rows, to, add);
        row += rows;
    }
}

struct Rounded {
    Ints low, high;  // codes
    float scale;
};

Rounded round_group(Floats low, Floats high) {
    const float amax = largest(max(abs(low), abs(high)));
    const Floats factor = floats(amax > 0 ? kInputMax / amax : 0.0f);
    return {to_ints(low * factor), to_ints(high * factor), amax / kInputMax};
}

void store_group(const Rounded& rounded, InputGroup& group) {
    store_inputs(group.codes, rounded.low);
    store_inputs(group.codes + kLanes / 4, rounded.high);
    group.scale = rounded.scale;
    group.total = group.scale * static_cast<float>(total(rounded.low + rounded.high));
}

Floats left_over(Floats x, Ints codes, float scale) { return x - to_floats(codes) * floats(scale); }

}  // namespace

void round_inputs(const LinearWeights& weights, const float* x, InputGroup* groups) {
    const int64_t num_groups = weights.num_groups();
    const auto inputs = [&](int64_t group, int64_t half) {
        const int64_t at = group * kGroup + half * kLanes;
        return load(first_lanes(weights.num_inputs - at), x + at);
    };
    for (int64_t group = 0; group < num_groups; ++group)
        store_group(round_group(inputs(group, 0), inputs(group, 1)), groups[group]);
    for (int64_t index = 0; index < weights.num_second(); ++index) {
        const int64_t group = weights.loud[index];
        const Floats low = inputs(group, 0), high = inputs(group, 1);
        const Rounded first = round_group(low, high);
        store_group(round_group(left_over(low, first.low, first.scale), left_over(high, first.high, first.scale)),
                    groups[num_groups + index]);
    }
}

void multiply(const LinearWeights& weights, const InputGroup* inputs, int64_t num_rows, float* y,
              bool add, int num_threads) {
    const Timed timed(phase_times.linear_ns);
    const int64_t num_tiles = (weights.num_outputs + kTileOutputs - 1) / kTileOutputs;
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1)
    for (int64_t tile = 0; tile < num_tiles; ++tile)
        multiply_all_rows(weights, tile, inputs, num_rows, y, add);
}

}  // namespace rejoinder

// x [num_rows, num_inputs] → y [num_rows, num_outputs]
extern "C" void rejoinder_linear(const rejoinder::LinearWeights* weights, const float* x,
                                 int64_t num_rows, float* y, int64_t num_threads) {
    using namespace rejoinder;
    const int64_t num_groups = weights->num_input_groups();
    auto inputs = buffer<InputGroup>(num_rows * num_groups);
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1 && num_rows > 8)
    for (int64_t row = 0; row < num_rows; ++row)
        round_inputs(*weights, x + row * weights->num_inputs, inputs.get() + row * num_groups);
    multiply(*weights, inputs.get(), num_rows, y, false, static_cast<int>(num_threads));
}
