// The table of library calls that the interposers (agent/interpose) write and plumb run
// (audit/calls) reads: one file per process, mapped shared. Only plain data and lock-free atomics,
// because the writer links libc alone. All processes of a table's file have the byte order of this
// machine.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace plumbline {

// Interposed functions, in the order of their numbers: X(symbol).
#define PLUMB_CALL_FUNCTIONS(X)           \
  X(sgemm_)                               \
  X(dgemm_)                               \
  X(sgemv_)                               \
  X(dgemv_)                               \
  X(cblas_sgemm)                          \
  X(cblas_dgemm)                          \
  X(cblas_cgemm)                          \
  X(cblas_zgemm)                          \
  X(ncclAllReduce)                        \
  X(ncclReduceScatter)                    \
  X(ncclAllGather)                        \
  X(ncclReduce)                           \
  X(ncclBroadcast)                        \
  X(ncclBcast)                            \
  X(ncclSend)                             \
  X(ncclRecv)                             \
  X(ncclGroupStart)                       \
  X(ncclGroupEnd)                         \
  X(ncclRedOpCreatePreMulSum)             \
  X(ncclCommInitRank)                     \
  X(ncclCommInitRankConfig)               \
  X(ncclCommInitAll)                      \
  X(ncclCommSplit)                        \
  X(ncclCommDestroy)                      \
  X(ncclCommAbort)                        \
  X(cublasSetMathMode)                    \
  X(cublasDestroy_v2)                     \
  X(cublasGemmEx)                         \
  X(cublasGemmEx_64)                      \
  X(cublasGemmBatchedEx)                  \
  X(cublasGemmBatchedEx_64)               \
  X(cublasGemmStridedBatchedEx)           \
  X(cublasGemmStridedBatchedEx_64)        \
  X(cublasSgemmEx)                        \
  X(cublasSgemmEx_64)                     \
  X(cublasSgemm_v2)                       \
  X(cublasSgemm_v2_64)                    \
  X(cublasDgemm_v2)                       \
  X(cublasDgemm_v2_64)                    \
  X(cublasHgemm)                          \
  X(cublasHgemm_64)                       \
  X(cublasSgemmBatched)                   \
  X(cublasSgemmBatched_64)                \
  X(cublasDgemmBatched)                   \
  X(cublasDgemmBatched_64)                \
  X(cublasHgemmBatched)                   \
  X(cublasHgemmBatched_64)                \
  X(cublasSgemmStridedBatched)            \
  X(cublasSgemmStridedBatched_64)         \
  X(cublasDgemmStridedBatched)            \
  X(cublasDgemmStridedBatched_64)         \
  X(cublasHgemmStridedBatched)            \
  X(cublasHgemmStridedBatched_64)         \
  X(cublasLtMatmul)                       \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescInit_internal)      \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutInit_internal)    \
  X(cublasLtMatrixLayoutDestroy)          \
  X(cublasLtMatmulAlgoConfigSetAttribute) \
  X(gloo_allreduce)                       \
  X(gloo_reduce)                          \
  X(gloo_broadcast)                       \
  X(gloo_allgather)                       \
  X(gloo_barrier)

enum class CallFunction : uint8_t {
#define PLUMB_CALL_NUMBER(name) name,
  PLUMB_CALL_FUNCTIONS(PLUMB_CALL_NUMBER)
#undef PLUMB_CALL_NUMBER
};

// One kind of call. `types`, `compute` and `op` hold the library's own numbers; kNoCallNumber if
// the call has none.
constexpr uint8_t kNoCallNumber = 255;
constexpr uint8_t kPreMulSumOp = 5;  // an operation that ncclRedOpCreatePreMulSum made
struct CallKind {
  CallFunction function{};
  uint8_t a = kNoCallNumber;        // dtype of a collective; of A
  uint8_t b = kNoCallNumber;        // of B
  uint8_t d = kNoCallNumber;        // of the result
  uint8_t op = kNoCallNumber;       // ncclRedOp_t
  uint8_t compute = kNoCallNumber;  // cublasComputeType_t
  uint8_t comm = kNoCallNumber;     // index into CallTable::comms
  uint8_t flags = 0;                // CallFlag
};
static_assert(sizeof(CallKind) == 8 && std::endian::native == std::endian::little);

// Returns the bytes of a kind as one word, without a store of bytes that a load of a word would
// wait for.
constexpr uint64_t WordOf(const CallKind& kind) {
  return static_cast<uint64_t>(kind.function) | uint64_t{kind.a} << 8 | uint64_t{kind.b} << 16 |
         uint64_t{kind.d} << 24 | uint64_t{kind.op} << 32 | uint64_t{kind.compute} << 40 |
         uint64_t{kind.comm} << 48 | uint64_t{kind.flags} << 56;
}

enum CallFlag : uint8_t {
  kCallMathMode = 0x1f,          // cublasMath_t, with CUBLAS_MATH_DISALLOW_REDUCED_... (16)
  kCallFastAccumulation = 0x20,  // CUBLASLT_MATMUL_DESC_FAST_ACCUM
  kCallNarrowSplit = 0x40,       // split along K, parts in D's dtype (cublasLt's algorithm)
  kCallOverride = 0x80,          // NVIDIA_TF32_OVERRIDE=0 in the process
};

struct CallCounter {
  std::atomic<uint32_t> state;  // 0: free, 1: being written, 2: complete
  uint32_t root;                // of a collective
  CallKind kind;
  uint64_t count;  // elements of a collective
  std::atomic<uint64_t> calls;
};

struct CallComm {
  std::atomic<uint64_t> pointer;  // 0: free, or destroyed
  std::atomic<uint64_t> calls;    // collectives so far
  uint64_t id;                    // the same on all ranks; 0: its creation was not seen
  uint64_t parent;                // the id of the communicator that was split; 0: none
  uint32_t ranks;                 // 0: not known
  int32_t rank;                   // -1: not known
  int32_t key;                    // of ncclCommSplit
  std::atomic<uint32_t> used;
  std::atomic<uint32_t> splits;
  uint32_t parent_rank;
};

// A collective of a communicator, in order.
struct CallEntry {
  std::atomic<uint64_t> number;  // index + 1 within the communicator, written last; 0: not complete
  CallKind kind;
  uint64_t count;
  uint32_t root;
  uint32_t unused;
};
static_assert(sizeof(CallEntry) == 32);

// Libraries and properties of a process that the writer found among its mapped objects.
enum CallMapped : uint32_t {
  kMappedBlas = 1,
  kMappedNccl = 2,
  kMappedCublas = 4,
  kMappedGloo = 8,
  kMappedCuda = 16,    // the driver
  kMappedPython = 32,  // the process is a Python interpreter
};

struct CallTable {
  static constexpr uint32_t kMagic = 0x4c43'4c50;  // "PLCL"
  static constexpr uint32_t kVersion = 1;
  // Of each of the first kLogs communicators, the first and the last collectives are kept.
  static constexpr uint32_t kCounters = 512, kComms = 64, kLogs = 16, kFirst = 256, kLast = 256;

  uint32_t magic, version;
  int64_t pid;
  int32_t rank, ranks;  // of the launcher's environment; -1 and 0: none
  std::atomic<uint32_t> mapped;
  std::atomic<uint32_t> ended;  // the process reached its exit handlers
  char name[64];
  std::atomic<uint64_t> uncounted;  // calls whose kind found no counter
  std::atomic<uint64_t> unknown;    // collectives of a communicator that found no place
  CallComm comms[kComms];
  CallCounter counters[kCounters];
  CallEntry logs[kLogs][kFirst + kLast];

  // Returns the place of the n-th collective in its log: the first ones are kept, then the last
  // ones.
  static uint32_t Place(uint64_t n) {
    return static_cast<uint32_t>(n < kFirst ? n : kFirst + (n - kFirst) % kLast);
  }
};

}  // namespace plumbline
