// y = x W^T + b with weights in groups of 32 inputs: scale * code + minimum, codes of 8 bits, or of
// 4 where that is all that the weights hold.
#pragma once

#include <cstddef>

#include "simd.h"

namespace rejoinder {

constexpr int kGroup = 32;        // inputs that share a scale
constexpr int kGroupQuads = kGroup / 4;
constexpr int kTileOutputs = 32;  // outputs that are stored together
constexpr int kTileLines = kTileOutputs / kLanes;

// A tile's part of one group: whole cache lines, read in order. A line has the codes of 16 outputs
// for `Codes::kLineQuads` times 4 inputs.
template <typename Codes>
struct WeightBlock {
    uint8_t codes[kTileLines][kGroupQuads / Codes::kLineQuads][kLineBytes];
    uint16_t scales[kTileOutputs];  // fp16
    uint16_t minima[kTileOutputs];
};

// 32 inputs of one token: scale * code. `total` is their sum.
template <typename Four>
struct InputGroup {
    Four codes[kGroupQuads];
    float scale;
    float total;
};

struct LinearWeights {
    const void* blocks;   // WeightBlock [ceil(num_outputs / 32)][num_groups]
    const float* bias;    // [num_outputs] or null
    const int32_t* loud;  // [num_loud] ascending, groups for which 8 bits of an input are too few
    int64_t num_outputs;
    int64_t num_inputs;
    int64_t num_loud;
    int64_t bits;         // of a code: 4 or 8
    int64_t num_groups() const { return (num_inputs + kGroup - 1) / kGroup; }
    // Of a token's inputs, rounded.
    int64_t input_bytes() const;
};

// x [num_inputs] → `rounded` [input_bytes]; inputs missing from the last group count as 0.
void round_inputs(const LinearWeights& weights, const float* x, std::byte* rounded);

// `rounded` [num_rows, input_bytes] → y [num_rows, num_outputs]: the product, plus y as it was where
// `add`. A row's result does not depend on the other rows.
void multiply(const LinearWeights& weights, const std::byte* rounded, int64_t num_rows, float* y, bool add,
              int num_threads);

}  // namespace rejoinder
