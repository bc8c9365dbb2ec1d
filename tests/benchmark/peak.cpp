// What a core can add up at most: products of 4 by 8 bits, two and two into words, and nothing else.
#include <immintrin.h>

#include <cstdint>

namespace {

// Written out, or a compiler sees that the products are always the same.
inline void add(__m256i& sum, __m256i codes, __m256i inputs) {
    __m256i products;
    asm volatile(
        "vpmaddubsw %3, %2, %1\n\t"
        "vpaddw %1, %0, %0"
        : "+x"(sum), "=&x"(products)
        : "x"(codes), "x"(inputs));
}

}  // namespace

// Adds `turns` times 8 products of 32 bytes.
extern "C" void peak(int64_t turns) {
    const __m256i codes = _mm256_set1_epi8(15);
    const __m256i inputs = _mm256_set1_epi8(1);
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
    for (int64_t turn = 0; turn < turns; ++turn) {
        add(a, codes, inputs);
        add(b, codes, inputs);
        add(c, codes, inputs);
        add(d, codes, inputs);
        add(e, codes, inputs);
        add(f, codes, inputs);
        add(g, codes, inputs);
        add(h, codes, inputs);
    }
}
