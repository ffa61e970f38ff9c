#include "audit/readers/safetensors/json.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace plumbline::audit {
namespace {

// Iterates over the header's characters, and records the position of the lexer.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ != b.at_;
  }

 private:
  const char* at_;
  const char** furthest_;
};

// Accepts exactly {"__metadata__": {string: string}, name: {"dtype": string, "shape": [n...],
// "data_offsets": [b, e]}}. Stops at the first event that does not fit, so the depth never exceeds
// three.
class HeaderHandler {
 public:
  HeaderHandler(const char* start, const char* const* at, SafetensorsHeader* header)
      : start_(start), at_(at), header_(header) {}

  const std::optional<Problem>& problem() const { return problem_; }

  bool null() { return Unexpected("null"); }
  bool boolean(bool) { return Unexpected("a boolean"); }
  bool number_float(double, const std::string&) {
    return Unexpected("a number that is not a 64-bit integer");
  }
  bool number_integer(int64_t) { return Unexpected("a negative number"); }
  bool binary(std::vector<uint8_t>&) { return Unexpected("binary data"); }

  bool number_unsigned(uint64_t value) {
    if (place_ == Place::kShape) {
      if (tensor_.shape.size() == kMaxAxes)
        return Fail("expected at most 8 axes, found more in tensor " + Quoted(tensor_.name));
      if (value > INT64_MAX)
        return Fail("expected an extent below 2^63, found " + std::to_string(value));
      tensor_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_.size() == 2)
        return Fail("expected two data_offsets, found more in tensor " + Quoted(tensor_.name));
      offsets_.push_back(value);
      return true;
    }
    return Unexpected("a number");
  }

  bool string(std::string& value) {
    if (place_ == Place::kMetadataValue) {
      header_->metadata[key_] = {std::move(value), key_at_};
      place_ = Place::kMetadata;
      return true;
    }
    if (place_ != Place::kDType) return Unexpected("a string");
    tensor_.dtype_name = std::move(value);
    place_ = Place::kTensor;
    return true;
  }

  bool start_object(size_t) {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kMetadataObject:
        place_ = Place::kMetadata;
        return true;
      case Place::kTensorObject:
        place_ = Place::kTensor;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool end_object() {
    if (place_ == Place::kTensor) return FinishTensor();
    place_ = place_ == Place::kMetadata ? Place::kTop : Place::kEnd;
    return true;
  }

  bool start_array(size_t) {
    if (place_ == Place::kShapeArray) {
      place_ = Place::kShape;
      return true;
    }
    if (place_ != Place::kOffsetsArray) return Unexpected("an array");
    place_ = Place::kOffsets;
    return true;
  }

  bool end_array() {
    place_ = Place::kTensor;
    return true;
  }

  bool key(std::string& name) {
    const uint64_t end = Offset();
    key_at_ = end - std::min<uint64_t>(name.size() + 2, end - kHeaderLengthBytes);
    if (place_ == Place::kTop) return TopKey(name);
    if (place_ == Place::kMetadata) {
      if (header_->metadata.count(name) > 0) return Duplicate("metadata key", name);
      key_ = std::move(name);
      place_ = Place::kMetadataValue;
      return true;
    }
    return TensorKey(name);
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) {
    std::string why = error.what();
    if (const size_t colon = why.find("column "); colon != std::string::npos) {
      const size_t text = why.find(": ", colon);
      if (text != std::string::npos) why = why.substr(text + 2);
    }
    return Fail("expected a JSON header, found: " + why.substr(0, 160));
  }

 private:
  enum class Place {
    kStart,
    kTop,
    kMetadataObject,
    kMetadata,
    kMetadataValue,
    kTensorObject,
    kTensor,
    kDType,
    kShapeArray,
    kShape,
    kOffsetsArray,
    kOffsets,
    kEnd
  };

  uint64_t Offset() const { return kHeaderLengthBytes + static_cast<uint64_t>(*at_ - start_); }

  bool Fail(std::string text) { return FailAt(Offset(), std::move(text)); }

  bool FailAt(uint64_t offset, std::string text) {
    if (!problem_) problem_ = Problem{offset, std::move(text)};
    return false;
  }

  bool Duplicate(const char* what, std::string_view name) {
    return Fail(std::string("expected each ") + what + " once, found " + Quoted(name) + " again");
  }

  bool Unexpected(const char* found) {
    const char* expected = "a JSON object";
    switch (place_) {
      case Place::kMetadataObject:
        expected = "__metadata__ to be an object of strings";
        break;
      case Place::kMetadataValue:
        return FailAt(key_at_,
                      "expected metadata " + Quoted(key_) + " to be a string, found " + found);
      case Place::kTensorObject:
        return Fail("expected an object with dtype, shape and data_offsets for tensor " +
                    Quoted(tensor_.name) + ", found " + found);
      case Place::kDType:
        expected = "dtype to be a string";
        break;
      case Place::kShapeArray:
      case Place::kShape:
        expected = "shape to be an array of whole numbers";
        break;
      case Place::kOffsetsArray:
      case Place::kOffsets:
        expected = "data_offsets to be an array of two whole numbers";
        break;
      default:
        break;
    }
    return Fail(std::string("expected ") + expected + ", found " + found);
  }

  bool TopKey(std::string& name) {
    if (name == "__metadata__") {
      if (std::exchange(has_metadata_, true)) return Duplicate("key", name);
      place_ = Place::kMetadataObject;
      return true;
    }
    if (header_->tensors.count(name) > 0) return Duplicate("tensor", name);
    tensor_ = {};
    tensor_.name = std::move(name);
    tensor_.declared_at = key_at_;
    offsets_.clear();
    has_dtype_ = has_shape_ = has_offsets_ = false;
    place_ = Place::kTensorObject;
    return true;
  }

  bool TensorKey(const std::string& name) {
    if (name == "dtype") {
      if (std::exchange(has_dtype_, true)) return Duplicate("key", name);
      place_ = Place::kDType;
    } else if (name == "shape") {
      if (std::exchange(has_shape_, true)) return Duplicate("key", name);
      place_ = Place::kShapeArray;
    } else if (name == "data_offsets") {
      if (std::exchange(has_offsets_, true)) return Duplicate("key", name);
      place_ = Place::kOffsetsArray;
    } else {
      return Fail("expected dtype, shape or data_offsets, found the key " + Quoted(name));
    }
    return true;
  }

  bool FinishTensor() {
    if (!has_dtype_ || !has_shape_ || !has_offsets_ || offsets_.size() != 2) {
      return Fail("expected dtype, shape and two data_offsets for tensor " + Quoted(tensor_.name) +
                  ", found fewer");
    }
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    std::string name = tensor_.name;
    header_->tensors.emplace(std::move(name), std::move(tensor_));
    place_ = Place::kTop;
    return true;
  }

  const char* start_;
  const char* const* at_;
  SafetensorsHeader* header_;
  Place place_ = Place::kStart;
  std::string key_;
  uint64_t key_at_ = 0;
  TensorEntry tensor_;
  std::vector<uint64_t> offsets_;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  std::optional<Problem> problem_;
};

}  // namespace

std::optional<Problem> ParseSafetensorsJson(const std::string& json, SafetensorsHeader* header) {
  const char* at = json.data();
  HeaderHandler handler(json.data(), &at, header);
  const CountingIterator first(json.data(), &at);
  const CountingIterator last(json.data() + json.size(), &at);
  const bool parsed = nlohmann::json::sax_parse(first, last, &handler);
  if (parsed || handler.problem()) return handler.problem();
  return Problem{kHeaderLengthBytes, "expected a JSON header, found something else"};
}

}  // namespace plumbline::audit
