// Tensors and their attributes, as the observations of plumbline/agent.h take them.
#ifndef PLUMBLINE_TENSORS_H_
#define PLUMBLINE_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "plumbline/plumbline.h"

namespace plumbline {

using Status = plumbline_status_t;

namespace internal {

template <typename T>
struct ElementOf {
  static_assert(std::is_arithmetic_v<T>, "name the type: Tensor::Of(data, {code, bits, 1}, shape)");
  static constexpr DLDataType kType = {std::is_same_v<T, bool>       ? uint8_t{PLUMBLINE_DL_BOOL}
                                       : std::is_floating_point_v<T> ? uint8_t{PLUMBLINE_DL_FLOAT}
                                       : std::is_signed_v<T>         ? uint8_t{PLUMBLINE_DL_INT}
                                                                     : uint8_t{PLUMBLINE_DL_UINT},
                                       static_cast<uint8_t>(8 * sizeof(T)), 1};
};

}  // namespace internal

// The types that have no name in C++.
inline constexpr DLDataType kF16 = {PLUMBLINE_DL_FLOAT, 16, 1};
inline constexpr DLDataType kBF16 = {PLUMBLINE_DL_BFLOAT, 16, 1};
inline constexpr DLDataType kE4M3 = {PLUMBLINE_DL_FLOAT8_E4M3FN, 8, 1};
inline constexpr DLDataType kE5M2 = {PLUMBLINE_DL_FLOAT8_E5M2, 8, 1};

// A borrowed tensor in C order, of at most 4 axes. For other layouts and for devices, fill a
// DLTensor. A default-constructed tensor is absent. The data must exist until the call that gets it
// returns. Construction is cheap, because the DLTensor is filled only if a call is due.
class Tensor {
 public:
  static constexpr int32_t kMaxAxes = 4;

  Tensor() {}  // user-provided, so that a const object may be default-initialised
  template <typename T>
  Tensor(const T* data, std::initializer_list<int64_t> shape)
      : Tensor(data, internal::ElementOf<T>::kType, shape) {}
  Tensor(const void* data, DLDataType type, std::initializer_list<int64_t> shape)
      : data_(data), type_(type), axes_(kTooMany) {
    if (shape.size() > static_cast<size_t>(kMaxAxes)) return;
    axes_ = static_cast<int32_t>(shape.size());
    int64_t* to = shape_;
    for (const int64_t extent : shape) *to++ = extent;
  }
  Tensor(const Tensor& other) { *this = other; }
  Tensor& operator=(const Tensor& other) {
    data_ = other.data_;
    axes_ = other.axes_;
    if (axes_ == kAbsent) return *this;
    type_ = other.type_;
    for (int32_t i = 0; i < axes_; ++i) shape_[i] = other.shape_[i];
    return *this;
  }

  // Returns a pointer into this object, or nullptr if absent.
  const DLTensor* get() const {
    if (axes_ == kAbsent) return nullptr;
    tensor_ = DLTensor();
    tensor_.data = const_cast<void*>(data_);
    tensor_.device = {static_cast<decltype(tensor_.device.device_type)>(PLUMBLINE_DL_CPU), 0};
    tensor_.dtype = type_;
    tensor_.ndim = axes_;  // if kTooMany, the library refuses the tensor with an error
    tensor_.shape = shape_;
    return &tensor_;
  }
  // Returns 0 if absent, -1 if there are more axes than kMaxAxes.
  int64_t elements() const {
    if (axes_ < 0) return axes_ == kAbsent ? 0 : -1;
    int64_t n = 1;
    for (int32_t i = 0; i < axes_; ++i) n *= shape_[i];
    return n;
  }
  const void* data() const { return data_; }
  DLDataType type() const { return type_; }  // only of a present tensor

 private:
  static constexpr int32_t kAbsent = -2;
  static constexpr int32_t kTooMany = -1;

  const void* data_ = nullptr;
  DLDataType type_ = {};
  int32_t axes_ = kAbsent;
  mutable int64_t shape_[kMaxAxes];
  mutable DLTensor tensor_;
};

// Attributes as in plumbline_tensor_t.
struct TensorFacts {
  const char* role = nullptr;
  const char* replicas = nullptr;
  int32_t target_format = PLUMBLINE_DTYPE_ABSENT;
};

// Tensors as in plumbline_update_t, and attributes of the optimizer.
struct UpdateTensors {
  Tensor before = {};
  Tensor after = {};
  Tensor intended = {};
  Tensor gradient = {};
  Tensor moment_before = {};
  Tensor moment_after = {};
  Tensor offsets = {};
  uint64_t count = 0;  // of the whole tensor, with offsets
};
struct UpdateFacts {
  const char* optimizer = nullptr;
  double lr = PLUMBLINE_NAN;
  double beta2 = PLUMBLINE_NAN;
  double eps = PLUMBLINE_NAN;
  double decay = PLUMBLINE_NAN;
  int32_t eps_dtype = PLUMBLINE_DTYPE_ABSENT;
};

// Tensors as in plumbline_matmul_t, of D = A B + C, and their attributes.
struct MatmulTensors {
  Tensor a = {};
  Tensor b = {};
  Tensor d = {};
  Tensor c = {};
  bool weight = false;  // b is [N, K], as a linear layer stores it, not [K, N]
  Tensor a_scale = {};  // as in plumbline_matmul_t; [B, N] for b, independent of `weight`
  Tensor b_scale = {};
};
struct MatmulFacts {
  int32_t declared_accumulator = PLUMBLINE_DTYPE_ABSENT;
  const char* input_format = nullptr;
  const char* library = nullptr;
  double scale = 0;
  const char* scale_format = nullptr;
  const char* output_rounding = nullptr;
  uint64_t block = 0;
  uint32_t a_tile = 0;
  uint32_t b_tile = 0;
};

// Columns as in plumbline_logprobs_t, [T] or [B,S], and their attributes.
struct LogprobsColumns {
  Tensor tokens = {};
  Tensor sequence_id = {};  // or [B]; required
  Tensor position = {};
  Tensor mask = {};
  Tensor rollout = {};  // at least one side is required
  Tensor train = {};
  Tensor rollout_entropy = {};
  Tensor rollout_varentropy = {};
  Tensor train_entropy = {};
  Tensor train_varentropy = {};
  Tensor versions = {};
  Tensor advantages = {};  // or [B], like those below except turns
  Tensor turns = {};
  Tensor cached_tokens = {};
  Tensor t_start = {};
  Tensor t_end = {};
  Tensor behaviour = {};  // [T] or [B,S]
};
struct LogprobsFacts {
  int32_t mode = PLUMBLINE_LOGPROBS_ABSENT;
  int64_t train_version = -1;
  int64_t top_k = -1;
  double temperature = PLUMBLINE_NAN;
  double top_p = PLUMBLINE_NAN;
  double kept_share = PLUMBLINE_NAN;
  double rescore_k2 = PLUMBLINE_NAN;
  int32_t selection = 0;  // PLUMBLINE_SELECTION_*
  int32_t source = 0;     // PLUMBLINE_ROLLOUT_*
  const char* worker = nullptr;
};

// Logits as in plumbline_logits_t, [..., V] of both sides, and their attributes.
struct LogitsTensors {
  Tensor train = {};
  Tensor rollout = {};
  Tensor tokens = {};   // leading axes; -1: none
  Tensor allowed = {};  // train's shape
};
struct LogitsFacts {
  int32_t mode = PLUMBLINE_LOGPROBS_ABSENT;
  double temperature = PLUMBLINE_NAN;
};

// Attributes as in plumbline_reduction_t, without its tensors.
struct ReductionFacts {
  int32_t op = PLUMBLINE_REDUCE_SUM;
  const char* group = nullptr;
  const char* algorithm = nullptr;
  const char* transport = nullptr;
  uint32_t group_size = 0;
  uint32_t group_rank = 0;
  int64_t sequence = -1;  // -1: not given
  int32_t wire_dtype = PLUMBLINE_DTYPE_ABSENT;
  double prescale = 0;
  double postscale = 0;
};

}  // namespace plumbline

#endif  // PLUMBLINE_TENSORS_H_
