// Tensors of a dump: checked against what a kind of dump expects, and read.
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

// What a tensor may hold.
enum class Content {
  kFloating,     // f64, f32, f16, bf16
  kAnyFloating,  // and the 8-bit formats
  kInteger,
  kMask,
  kAny,
};

bool Fits(DType dtype, Content content);
const char* Expectation(Content content);

// "[2,3]"
std::string ShapeText(const std::vector<int64_t>& shape);

// A problem unless the dtype fits.
void CheckDType(const TensorEntry& tensor, Content content, std::vector<Problem>* problems);

// A problem unless the tensor has exactly this shape; `axes` names it ("[N,m]").
void CheckShape(const TensorEntry& tensor, const std::string& axes,
                const std::vector<int64_t>& expected, std::vector<Problem>* problems);

// A problem when these tensors, nullptr for an absent one, are too large for one evidence item.
// `what` names them ("routing tensors"), `advice` says how to dump less ("dump fewer tokens a
// file"). The first one is present.
void CheckTotalSize(const std::vector<const TensorEntry*>& tensors, const char* what,
                    const char* advice, std::vector<Problem>* problems);

// The tensor of this name, nullptr and a problem that names its axes when there is none.
const TensorEntry* Required(const SafetensorsHeader& header, const char* name, const char* axes,
                            std::vector<Problem>* problems);

// Reads a tensor whole.
absl::Status LoadTensor(const InputFile& file, const TensorEntry& entry, v1::Tensor* tensor);

}  // namespace plumbline::audit
