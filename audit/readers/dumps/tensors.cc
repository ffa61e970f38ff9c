#include "audit/readers/dumps/tensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "base/parallel.h"

namespace plumbline::audit {
namespace {

// Maps memory for the whole pages of [data, data + bytes), with several threads if that is faster.
// It takes half the time of page faults at the first access. Does not change the contents. Does
// nothing on kernels before Linux 5.14, which do not support it.
void PopulatePages(void* data, uint64_t bytes) {
#if defined(MADV_POPULATE_WRITE)
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + page - 1) / page;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(data) + bytes) / page;
  if (last <= first) return;
  const auto pages = static_cast<int64_t>(last - first);
  ParallelParts(pages, ThreadsFor(bytes), [&](int, int64_t from, int64_t to) {
    void* start = reinterpret_cast<void*>((first + static_cast<uintptr_t>(from)) * page);
    (void)madvise(start, static_cast<size_t>(to - from) * page, MADV_POPULATE_WRITE);
  });
#endif
}

}  // namespace

bool Fits(DType dtype, Content content) {
  switch (content) {
    case Content::kFloating:
      return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
             dtype == DType::kBF16;
    case Content::kAnyFloating:
      return IsFloating(dtype);
    case Content::kInteger:
      return IsInteger(dtype) && dtype != DType::kBool;
    case Content::kMask:
      return dtype == DType::kBool || dtype == DType::kU8;
    case Content::kAny:
      return DTypeSize(dtype) > 0;
  }
  return false;
}

const char* Expectation(Content content) {
  switch (content) {
    case Content::kFloating:
      return "F64, F32, F16 or BF16";
    case Content::kAnyFloating:
      return "F64, F32, F16, BF16, F8_E4M3 or F8_E5M2";
    case Content::kInteger:
      return "an integer dtype";
    case Content::kMask:
      return "BOOL or U8";
    case Content::kAny:
      return "a dtype of the format that is read";
  }
  return "";
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (const int64_t extent : shape) out += (out.size() > 1 ? "," : "") + std::to_string(extent);
  return out + "]";
}

void CheckDType(const TensorEntry& tensor, Content content, std::vector<Problem>* problems) {
  if (Fits(tensor.dtype, content)) return;
  problems->push_back(
      {tensor.declared_at,
       "expected " + tensor.name + " as " + Expectation(content) + ", found " + tensor.dtype_name});
}

void CheckShape(const TensorEntry& tensor, const std::string& axes,
                const std::vector<int64_t>& expected, std::vector<Problem>* problems) {
  if (tensor.shape == expected) return;
  problems->push_back({tensor.declared_at, "expected " + tensor.name + " of shape " + axes + " = " +
                                               ShapeText(expected) + ", found " +
                                               ShapeText(tensor.shape)});
}

// Adds a problem if the tensors do not fit: a protobuf message, and so an evidence item, is limited
// to 2 GiB.
void CheckTotalSize(const std::vector<const TensorEntry*>& tensors, const char* what,
                    const char* advice, std::vector<Problem>* problems) {
  constexpr uint64_t kMost = (uint64_t{1} << 31) - (uint64_t{1} << 20);
  uint64_t total = 0;
  for (const TensorEntry* tensor : tensors) total += tensor == nullptr ? 0 : tensor->bytes();
  if (total <= kMost) return;
  problems->push_back({tensors.front()->declared_at,
                       "expected at most " + std::to_string(kMost) + " bytes of " + what +
                           " in one dump, found " + std::to_string(total) + " (" + advice + ")"});
}

const TensorEntry* Required(const SafetensorsHeader& header, const char* name, const char* axes,
                            std::vector<Problem>* problems) {
  const TensorEntry* tensor = header.Find(name);
  if (tensor == nullptr)
    problems->push_back(
        {0, std::string("expected a tensor ") + name + " of shape " + axes + ", found none"});
  return tensor;
}

absl::Status LoadTensor(const InputFile& file, const TensorEntry& entry, v1::Tensor* tensor) {
  tensor->set_dtype(static_cast<v1::DType>(entry.dtype));
  for (const int64_t extent : entry.shape) tensor->add_shape(extent);
  std::string* data = tensor->mutable_data();
  data->reserve(entry.bytes());
  PopulatePages(data->data(), entry.bytes());
  data->resize(entry.bytes());
  std::vector<absl::Status> read(static_cast<size_t>(ThreadsFor(entry.bytes())));
  ParallelParts(static_cast<int64_t>(data->size()), static_cast<int>(read.size()),
                [&](int part, int64_t first, int64_t last) {
                  read[static_cast<size_t>(part)] =
                      file.ReadAt(entry.begin + static_cast<uint64_t>(first), data->data() + first,
                                  static_cast<size_t>(last - first));
                });
  for (const absl::Status& status : read) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace plumbline::audit
