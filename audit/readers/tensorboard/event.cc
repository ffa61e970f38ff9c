// Field numbers are those of TensorFlow's event.proto, summary.proto and tensor.proto.
#include "audit/readers/tensorboard/event.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "audit/readers/input/wire.h"
#include "audit/readers/tensorboard/hparams.h"
#include "base/half.h"

namespace plumbline::audit {
namespace {

enum EventField : uint32_t { kWallTime = 1, kStep = 2, kSummary = 5, kSessionLog = 7 };
enum ValueField : uint32_t { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
constexpr std::string_view kHparamsTag = "_hparams_/session_start_info";
enum DType : uint64_t {
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kInt64 = 9,
  kBfloat16 = 14,
  kUint16 = 17,
  kHalf = 19,
  kUint32 = 22,
  kUint64 = 23,
};

// Returns the number of elements of a TensorShapeProto. If it is unknown, or the bytes are not a
// shape, returns nullopt.
std::optional<uint64_t> Elements(std::string_view bytes) {
  WireReader shape(bytes);
  uint64_t elements = 1;
  uint32_t field = 0, type = 0;
  while (shape.Next(&field, &type)) {
    uint64_t word = 0;
    std::string_view dim;
    if (field == 2 && type == WireReader::kBytes) {
      if (!shape.Bytes(&dim)) break;
      WireReader sizes(dim);
      uint64_t size = 0;
      while (sizes.Next(&field, &type)) {
        if (field == 1 && type == WireReader::kVarint) {
          if (!sizes.Varint(&size)) break;
        } else if (!sizes.Skip(type)) {
          break;
        }
      }
      if (sizes.failed()) return std::nullopt;
      elements = size <= 1 ? elements * size : 2;  // all numbers above 1 are treated equally
      if (elements != 1) return elements;
    } else if (field == 3 && type == WireReader::kVarint) {
      if (!shape.Varint(&word)) break;
      if (word != 0) return std::nullopt;  // the rank is unknown
    } else if (!shape.Skip(type)) {
      break;
    }
  }
  if (shape.failed()) return std::nullopt;
  return elements;
}

template <typename Value>
std::optional<double> Content(std::string_view bytes) {
  if (bytes.size() != sizeof(Value)) return std::nullopt;
  Value value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return static_cast<double>(value);
}

std::optional<double> FromContent(uint64_t dtype, std::string_view bytes) {
  switch (dtype) {
    case kFloat:
      return Content<float>(bytes);
    case kDouble:
      return Content<double>(bytes);
    case kInt32:
      return Content<int32_t>(bytes);
    case kUint8:
      return Content<uint8_t>(bytes);
    case kInt16:
      return Content<int16_t>(bytes);
    case kInt8:
      return Content<int8_t>(bytes);
    case kInt64:
      return Content<int64_t>(bytes);
    case kUint16:
      return Content<uint16_t>(bytes);
    case kUint32:
      return Content<uint32_t>(bytes);
    case kUint64:
      return Content<uint64_t>(bytes);
    case kBfloat16:
    case kHalf: {
      if (bytes.size() != 2) return std::nullopt;
      uint16_t bits;
      std::memcpy(&bits, bytes.data(), 2);
      return dtype == kHalf ? F16ToFloat(bits) : BF16ToFloat(bits);
    }
    default:
      return std::nullopt;
  }
}

// Reads the first element of a repeated field of numbers, packed or not, according to its type.
bool FirstNumber(WireReader* tensor, uint32_t field, uint32_t type, uint64_t* bits) {
  const bool fixed = field == 5 || field == 6;
  if (type != WireReader::kBytes) {
    uint32_t half = 0;
    if (type == WireReader::kFixed32 && tensor->Fixed32(&half)) {
      *bits = half;
      return true;
    }
    return type == WireReader::kFixed64 ? tensor->Fixed64(bits) : tensor->Varint(bits);
  }
  std::string_view packed;
  if (!tensor->Bytes(&packed)) return false;
  if (packed.empty()) return true;
  WireReader values(packed);
  if (!fixed) return values.Varint(bits);
  uint32_t half = 0;
  if (field == 6) return values.Fixed64(bits);
  if (!values.Fixed32(&half)) return false;
  *bits = half;
  return true;
}

double FromBits(uint64_t dtype, uint64_t bits) {
  switch (dtype) {
    case kFloat:
      return std::bit_cast<float>(static_cast<uint32_t>(bits));
    case kDouble:
      return std::bit_cast<double>(bits);
    case kHalf:
      return F16ToFloat(static_cast<uint16_t>(bits));
    case kBfloat16:
      return BF16ToFloat(static_cast<uint16_t>(bits));
    case kUint64:
      return static_cast<double>(bits);
    default:
      return static_cast<double>(static_cast<int64_t>(bits));
  }
}

bool IsNumeric(uint64_t dtype) {
  switch (dtype) {
    case kFloat:
    case kDouble:
    case kInt32:
    case kUint8:
    case kInt16:
    case kInt8:
    case kInt64:
    case kBfloat16:
    case kUint16:
    case kHalf:
    case kUint32:
    case kUint64:
      return true;
    default:
      return false;
  }
}

// Reads the number of a TensorProto of one number. As usual in protocol buffers, zero is omitted.
// Returns false if the bytes are damaged.
bool ReadTensor(std::string_view bytes, std::optional<double>* value) {
  WireReader tensor(bytes);
  uint64_t dtype = 0, bits = 0;
  std::optional<uint64_t> elements;
  std::string_view shape, content;
  uint32_t field = 0, type = 0;
  while (tensor.Next(&field, &type)) {
    bool read = true;
    if (field == 1 && type == WireReader::kVarint) {
      read = tensor.Varint(&dtype);
    } else if (field == 2 && type == WireReader::kBytes) {
      read = tensor.Bytes(&shape);
      elements = Elements(shape);
    } else if (field == 4 && type == WireReader::kBytes) {
      read = tensor.Bytes(&content);
    } else if ((field == 5 || field == 6 || field == 7 || field == 10 || field == 13 ||
                field == 16 || field == 17) &&
               type != 3 && type != 4) {
      read = FirstNumber(&tensor, field, type, &bits);
    } else {
      read = tensor.Skip(type);
    }
    if (!read) return false;
  }
  if (tensor.failed()) return false;
  // A shape without dimensions is written as no bytes, so a missing shape means a scalar.
  if (elements.value_or(shape.data() == nullptr ? 1 : 0) != 1 || !IsNumeric(dtype)) return true;
  *value = content.empty() ? FromBits(dtype, bits) : FromContent(dtype, content);
  return true;
}

bool ReadValue(std::string_view bytes, int64_t step, PointSink* sink) {
  WireReader summary(bytes);
  std::string_view tag, tensor, metadata;
  std::optional<double> value;
  uint32_t field = 0, type = 0;
  while (summary.Next(&field, &type)) {
    bool read = true;
    if (field == kTag && type == WireReader::kBytes) {
      read = summary.Bytes(&tag);
    } else if (field == kSimpleValue && type == WireReader::kFixed32) {
      uint32_t bits = 0;
      read = summary.Fixed32(&bits);
      value = std::bit_cast<float>(bits);
    } else if (field == kTensor && type == WireReader::kBytes) {
      read = summary.Bytes(&tensor) && ReadTensor(tensor, &value);
    } else if (field == kMetadata && type == WireReader::kBytes) {
      read = summary.Bytes(&metadata);
    } else {
      read = summary.Skip(type);
    }
    if (!read) return false;
  }
  if (summary.failed()) return false;
  if (tag == kHparamsTag) return ReadHparams(metadata, sink);
  if (value && !tag.empty()) sink->Add(step, sink->Column(tag), *value);
  return true;
}

bool ReadSummary(std::string_view bytes, int64_t step, PointSink* sink) {
  WireReader summary(bytes);
  uint32_t field = 0, type = 0;
  std::string_view value;
  while (summary.Next(&field, &type)) {
    if (field == 1 && type == WireReader::kBytes) {
      if (!summary.Bytes(&value) || !ReadValue(value, step, sink)) return false;
    } else if (!summary.Skip(type)) {
      return false;
    }
  }
  return !summary.failed();
}

// Fast path for most events: a time, a step, and one simple value. Returns false for any other
// event, and then does nothing.
bool ReadPlainEvent(std::string_view bytes, PointSink* sink) {
  constexpr unsigned char kTimeKey = 0x09, kStepKey = 0x10, kSummaryKey = 0x2a;
  constexpr unsigned char kFirst = 0x0a, kSimpleKey = 0x15;
  WireReader event(bytes);
  uint64_t time = 0, step = 0;
  std::string_view summary, value, tag;
  if (!event.Byte(kTimeKey) || !event.Fixed64(&time) || !event.Byte(kStepKey) ||
      !event.Varint(&step) || !event.LastBytes(kSummaryKey, &summary))
    return false;
  if (!WireReader(summary).LastBytes(kFirst, &value)) return false;
  WireReader of_value(value);
  uint32_t bits = 0;
  if (!of_value.Byte(kFirst) || !of_value.Bytes(&tag) || tag.empty() ||
      !of_value.Byte(kSimpleKey) || !of_value.Fixed32(&bits) || !of_value.at_end())
    return false;
  sink->Add(static_cast<int64_t>(step), sink->Column(tag), std::bit_cast<float>(bits));
  return true;
}

// Returns true for a SessionLog with status START. It invalidates earlier records from its step on.
bool IsStart(std::string_view bytes) {
  WireReader log(bytes);
  uint32_t field = 0, type = 0;
  uint64_t status = 0;
  while (log.Next(&field, &type)) {
    if (!(field == 1 && type == WireReader::kVarint ? log.Varint(&status) : log.Skip(type))) break;
  }
  return !log.failed() && status == 1;
}

}  // namespace

bool ReadEvent(std::string_view bytes, PointSink* sink) {
  if (ReadPlainEvent(bytes, sink)) return true;
  WireReader event(bytes);
  uint64_t step = 0;
  std::string_view summary, session;
  uint32_t field = 0, type = 0;
  while (event.Next(&field, &type)) {
    bool read = true;
    if (field == kStep && type == WireReader::kVarint) {
      read = event.Varint(&step);
    } else if (field == kSummary && type == WireReader::kBytes) {
      read = event.Bytes(&summary);
    } else if (field == kSessionLog && type == WireReader::kBytes) {
      read = event.Bytes(&session);
    } else {
      read = event.Skip(type);
    }
    if (!read) return false;
  }
  if (event.failed()) return false;
  if (!session.empty() && IsStart(session)) sink->Resumed();
  return summary.empty() || ReadSummary(summary, static_cast<int64_t>(step), sink);
}

std::optional<double> EventTime(std::string_view bytes) {
  WireReader event(bytes);
  std::optional<double> time;
  uint32_t field = 0, type = 0;
  while (event.Next(&field, &type)) {
    uint64_t bits = 0;
    if (field == kWallTime && type == WireReader::kFixed64) {
      if (event.Fixed64(&bits)) time = std::bit_cast<double>(bits);
    } else if (!event.Skip(type)) {
      break;
    }
  }
  if (event.failed() || !time || !std::isfinite(*time)) return std::nullopt;
  return time;
}

}  // namespace plumbline::audit
