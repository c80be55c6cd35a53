/* The made-up accelerator's instructions in plain C, written from prose and not from the description, so that the text of
   the source route can be compiled and run on the host. */
#include <math.h>
#include <stdint.h>
#include <string.h>
#define __dram
#define __spad
#define __acc
typedef uint16_t bf16;
typedef uint16_t f16;
enum { NPU_f64 = 8, NPU_f32 = 4, NPU_bf16 = 2, NPU_f16 = 2, NPU_i64 = 8, NPU_i32 = 4, NPU_i16 = 2, NPU_i8 = 1,
       NPU_u64 = 8, NPU_u32 = 4, NPU_u16 = 2, NPU_u8 = 1, NPU_bool = 1 };

static float widen(bf16 h) { uint32_t u = (uint32_t)h << 16; float f; memcpy(&f, &u, 4); return f; }
static bf16 narrow(float f) {
  uint32_t u; memcpy(&u, &f, 4);
  return f != f ? (bf16)(u >> 16 | 0x40) : (bf16)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static void copy_rows(void *d, int64_t dl, const void *s, int64_t sl, int rows, int columns, int size) {
  for (int i = 0; i < rows; i++) memcpy((char *)d + i * dl * size, (const char *)s + i * sl * size, (size_t)columns * size);
}
#define npu_dma_load copy_rows
#define npu_dma_store copy_rows

static void npu_mma_bf16(float *c, int lc, const bf16 *a, int la, const bf16 *b, int lb, int m, int n, int k) {
  for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) {
    float sum = c[i * lc + j];
    for (int l = 0; l < k; l++) sum += widen(a[i * la + l]) * widen(b[l * lb + j]);
    c[i * lc + j] = sum;
  }
}
static void npu_mma_i8(int32_t *c, int lc, const int8_t *a, int la, const int8_t *b, int lb, int m, int n, int k) {
  for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) for (int l = 0; l < k; l++)
    c[i * lc + j] += (int32_t)a[i * la + l] * b[l * lb + j];
}

#define TWO(NAME, Y, RESULT) static void npu_v##NAME##_f32(float *d, const float *p, const float *q, int n) { \
  for (int i = 0; i < n; i++) { float x = p[i], y = q[Y]; d[i] = RESULT; } }
TWO(add, i, x + y) TWO(sub, i, x - y) TWO(mul, i, x * y) TWO(div, i, x / y)
TWO(max, i, x != x || x > y ? x : y) TWO(min, i, x != x || x < y ? x : y)
TWO(add1, 0, x + y) TWO(sub1, 0, x - y) TWO(mul1, 0, x * y)

#define ONE(NAME, RESULT) static void npu_v##NAME##_f32(float *d, const float *p, int n) { \
  for (int i = 0; i < n; i++) { double x = p[i]; d[i] = (float)(RESULT); } }
ONE(neg, -x) ONE(abs, fabs(x)) ONE(sqrt, sqrt(x)) ONE(exp, exp(x)) ONE(tanh, tanh(x)) ONE(rsqrt, 1 / sqrt(x)) ONE(rcp, 1 / x)

static int8_t clamp(float x) { return x != x ? 0 : x >= 127 ? 127 : x <= -128 ? -128 : (int8_t)lrintf(x); }
#define MOVE(NAME, TO, FROM, RESULT) static void npu_##NAME(TO *d, const FROM *p, int n) { \
  for (int i = 0; i < n; i++) { FROM x = p[i]; d[i] = RESULT; } }
MOVE(vload_f32_bf16, float, bf16, widen(x)) MOVE(vload_f32_f32, float, float, x) MOVE(vload_i32_i32, int32_t, int32_t, x)
MOVE(vstore_bf16_f32, bf16, float, narrow(x)) MOVE(vstore_f32_f32, float, float, x) MOVE(vstore_i32_i32, int32_t, int32_t, x)
MOVE(vstore_i8_f32, int8_t, float, clamp(x)) MOVE(vcvt_f32_i32, float, int32_t, (float)x)

static void npu_vfill_f32(float *d, float s, int n) { for (int i = 0; i < n; i++) d[i] = s; }
static void npu_vfill_i32(int32_t *d, int32_t s, int n) { for (int i = 0; i < n; i++) d[i] = s; }
static void npu_vrsum_f32(float *d, const float *x, int n) { double s = 0; for (int i = 0; i < n; i++) s += x[i]; *d = (float)s; }
static void npu_vrmax_f32(float *d, const float *x, int n) {
  float m = -INFINITY;
  for (int i = 0; i < n; i++) if (m == m && !(x[i] <= m)) m = x[i];
  *d = m;
}
