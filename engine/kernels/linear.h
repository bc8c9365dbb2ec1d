// y = x W^T + b with weights in 8 bits by groups of 32 inputs: scale * code + minimum.
#pragma once

#include "simd.h"

namespace rejoinder {

constexpr int kGroup = 32;        // inputs that share a scale
constexpr int kTileOutputs = 32;  // outputs that are stored together

// A tile's part of one group: codes [8][32 outputs][4 inputs], then fp16 scales and minima [32].
// 18 cache lines, read in order.
struct WeightBlock {
    uint8_t codes[kGroup / 4 * kTileOutputs * 4];
    uint16_t scales[kTileOutputs];
    uint16_t minima[kTileOutputs];
};

// 32 inputs of one token: scale * code. `total` is their sum.
struct InputGroup {
    FourInputs codes[kGroup / 4];
    float scale;
    float total;
};

struct LinearWeights {
    const WeightBlock* blocks;  // [ceil(num_outputs / 32)][num_groups]
    const float* bias;          // [num_outputs] or null
    const int32_t* loud;        // [num_loud], groups for which 8 bits of an input are too few
    int64_t num_outputs;
    int64_t num_inputs;
    int64_t num_loud;
    int64_t num_groups() const { return (num_inputs + kGroup - 1) / kGroup; }
    int64_t num_second() const { return kRoundsTwice ? num_loud : 0; }
    // Of a token; what the first rounding left of the loud groups stands behind the others.
    int64_t num_input_groups() const { return num_groups() + num_second(); }
};

// x [num_inputs] → groups [num_input_groups]; inputs missing from the last group count as 0.
void round_inputs(const LinearWeights& weights, const float* x, InputGroup* groups);

// y [num_rows, num_outputs] = the product, plus y as it was where `add`. A row's result does not
// depend on the other rows.
void multiply(const LinearWeights& weights, const InputGroup* inputs, int64_t num_rows, float* y,
              bool add, int num_threads);

}  // namespace rejoinder
