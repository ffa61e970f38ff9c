// Checks tensors of a dump against the requirements of its kind, and reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/safetensors/header.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// Dtypes that a tensor may have.
enum class Content {
  kFloating,     // f64, f32, f16, bf16
  kAnyFloating,  // also the 8-bit formats
  kInteger,
  kMask,
  kAny,
};

bool Fits(DType dtype, Content content);
const char* Expectation(Content content);

// Returns "[2,3]".
std::string ShapeText(const std::vector<int64_t>& shape);

// Adds a problem unless the dtype fits.
void CheckDType(const TensorEntry& tensor, Content content, std::vector<Problem>* problems);

// Adds a problem unless the tensor has exactly this shape; `axes` names it ("[N,m]").
void CheckShape(const TensorEntry& tensor, const std::string& axes,
                const std::vector<int64_t>& expected, std::vector<Problem>* problems);

// Adds a problem if these tensors (nullptr if absent; the first is present) are too large for one
// evidence item. `what` names them ("routing tensors"), `advice` states how to dump less ("dump
// fewer tokens a file").
void CheckTotalSize(const std::vector<const TensorEntry*>& tensors, const char* what,
                    const char* advice, std::vector<Problem>* problems);

// Returns the tensor of this name. If there is none, returns nullptr and adds a problem that names
// its axes.
const TensorEntry* Required(const SafetensorsHeader& header, const char* name, const char* axes,
                            std::vector<Problem>* problems);

// Reads a whole tensor.
absl::Status LoadTensor(const InputFile& file, const TensorEntry& entry, v1::Tensor* tensor);

}  // namespace plumbline::audit
