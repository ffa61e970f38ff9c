#include "tests/rules/support/spec_values.h"

#include <cstring>
#include <utility>

#include "tests/support/batches.h"

namespace plumbline::rules::testing {
namespace {

DType DTypeNamed(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    if (name == DTypeName(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  throw std::runtime_error("unknown dtype " + name);
}

template <typename T>
void Put(T value, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

void SetField(const SpecFields& fields, const std::string& key, const std::string& value) {
  if (const auto w = fields.whole.find(key); w != fields.whole.end()) {
    *w->second = std::stoi(value);
  } else if (const auto n = fields.number.find(key); n != fields.number.end()) {
    *n->second = std::stod(value);
  } else if (const auto f = fields.flag.find(key); f != fields.flag.end()) {
    if (value != "on" && value != "off") throw std::runtime_error(key + ": expected on or off");
    *f->second = value == "on";
  } else if (const auto t = fields.text.find(key); t != fields.text.end()) {
    *t->second = value;
  } else if (const auto d = fields.dtype.find(key); d != fields.dtype.end()) {
    *d->second = DTypeNamed(value);
  } else {
    throw std::runtime_error("unknown key " + key);
  }
}

Stored::Stored(const std::vector<double>& values, DType dtype) : dtype_(dtype) {
  for (const double x : values) {
    const double r = IsFloating(dtype) ? RoundToFormat(x, dtype) : x;
    switch (dtype) {
      case DType::kF64:
        Put(r, bytes_);
        break;
      case DType::kF32:
        Put(static_cast<float>(r), bytes_);
        break;
      case DType::kF16:
        Put(FloatToF16(static_cast<float>(r)), bytes_);
        break;
      case DType::kBF16:
        Put(FloatToBF16(static_cast<float>(r)), bytes_);
        break;
      case DType::kE4M3:
        Put(FloatToE4M3(static_cast<float>(r)), bytes_);
        break;
      case DType::kE5M2:
        Put(FloatToE5M2(static_cast<float>(r)), bytes_);
        break;
      case DType::kI64:
        Put(static_cast<int64_t>(r), bytes_);
        break;
      case DType::kI32:
        Put(static_cast<int32_t>(r), bytes_);
        break;
      default:
        throw std::runtime_error("dtype cannot be stored");
    }
  }
}

TensorView Stored::View(std::vector<int64_t> shape) const {
  TensorView v;
  v.data = bytes_.data();
  v.dtype = dtype_;
  v.rank = static_cast<int>(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i > 0; --i) {
    v.shape[i - 1] = shape[i - 1];
    v.stride[i - 1] = stride;
    stride *= shape[i - 1];
  }
  return v;
}

v1::Tensor TensorOf(const std::vector<double>& values, DType dtype,
                    const std::vector<int64_t>& shape) {
  v1::Tensor tensor;
  tensor.set_dtype(static_cast<v1::DType>(dtype));
  for (const int64_t extent : shape) tensor.add_shape(extent);
  *tensor.mutable_data() = std::move(Stored(values, dtype).bytes());
  return tensor;
}

void AddTrainer(int rank, int ranks, v1::Batch* batch) {
  *batch->add_sources() =
      test::SourceOf("run", static_cast<uint32_t>(rank), static_cast<uint32_t>(ranks));
}

}  // namespace plumbline::rules::testing
