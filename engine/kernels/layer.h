// A decoder layer in one call: what stands between the matrix products, fused with them.
#pragma once

#include "attention.h"
#include "linear.h"

namespace rejoinder {

// Root mean square norm, then a linear layer.
struct NormedLinear {
    const float* norm;  // [num_inputs]
    const LinearWeights* linear;
};

struct LayerWeights {
    NormedLinear qkv;      // query, key and value heads in this order
    const LinearWeights* output;
    NormedLinear gate_up;
    const LinearWeights* down;
    int64_t num_heads;
    float norm_eps;
};

struct Batch {
    const float* cos;  // [num_tokens, head_dim]
    const float* sin;  // the first half negated
    const int64_t* slots;
    int64_t num_tokens;
    Spans spans;
};

}  // namespace rejoinder
