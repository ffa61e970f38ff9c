// Reads the wire format of protocol buffers field by field, without message classes. Supports what
// event files and W&B records need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace plumbline::audit {

// Reads one message. The bytes must outlive the reader. After the first error every call returns
// false.
class WireReader {
 public:
  enum Type : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  explicit WireReader(std::string_view bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}

  // Reads the next field's number and type. Returns false at the end, or if the bytes are damaged.
  bool Next(uint32_t* field, uint32_t* type) {
    if (at_ == end_ || failed_) return false;
    uint64_t key = 0;
    if (!Varint(&key)) return false;
    *field = static_cast<uint32_t>(key >> 3);
    *type = static_cast<uint32_t>(key & 7);
    return (key >> 3) - 1 < (1u << 29) - 1 || Fail();
  }
  bool Varint(uint64_t* value) {
    if (at_ != end_ && static_cast<signed char>(*at_) >= 0) {
      *value = static_cast<unsigned char>(*at_++);
      return true;
    }
    return LongVarint(value);
  }
  bool Fixed64(uint64_t* value) { return Fixed(value); }
  bool Fixed32(uint32_t* value) { return Fixed(value); }
  bool Bytes(std::string_view* bytes) {
    uint64_t size = 0;
    if (!Varint(&size)) return false;
    if (size > static_cast<uint64_t>(end_ - at_)) return Fail();
    *bytes = {at_, static_cast<size_t>(size)};
    at_ += size;
    return true;
  }
  // Calls part(field, bytes) for each remaining field of bytes, and skips other fields. Returns
  // false if part returned false, or the bytes are damaged.
  template <typename Part>
  bool EachBytes(Part part) {
    uint32_t field = 0, type = 0;
    while (Next(&field, &type)) {
      std::string_view bytes;
      if (type != kBytes) {
        if (!Skip(type)) return false;
      } else if (!Bytes(&bytes) || !part(field, bytes)) {
        return false;
      }
    }
    return !failed();
  }
  // Skips the value of a field of this type. Groups are an error, because they are obsolete.
  bool Skip(uint32_t type) {
    uint64_t word = 0;
    uint32_t half = 0;
    std::string_view bytes;
    switch (type) {
      case kVarint:
        return Varint(&word);
      case kFixed64:
        return Fixed64(&word);
      case kBytes:
        return Bytes(&bytes);
      case kFixed32:
        return Fixed32(&half);
      default:
        return Fail();
    }
  }
  bool failed() const { return failed_; }

  // If the next byte equals `byte`, skips it and returns true. Used for messages that mostly have
  // one form.
  bool Byte(unsigned char byte) {
    if (at_ == end_ || static_cast<unsigned char>(*at_) != byte) return false;
    ++at_;
    return true;
  }
  bool at_end() const { return at_ == end_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }  // number of bytes
  // Reads the next field if its key byte is `key`. Returns true if it is the last of its message.
  bool LastBytes(unsigned char key, std::string_view* bytes) {
    return Byte(key) && Bytes(bytes) && at_ == end_;
  }

 private:
  bool Fail() {
    failed_ = true;
    return false;
  }
  template <typename Value>
  bool Fixed(Value* value) {
    if (static_cast<size_t>(end_ - at_) < sizeof *value) return Fail();
    std::memcpy(value, at_, sizeof *value);
    at_ += sizeof *value;
    return true;
  }
  bool LongVarint(uint64_t* value) {
    uint64_t bits = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ == end_) return Fail();
      const auto byte = static_cast<unsigned char>(*at_++);
      if (shift == 63 && byte > 1) return Fail();
      bits |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        *value = bits;
        return true;
      }
    }
    return Fail();
  }

  const char* at_;
  const char* end_;
  bool failed_ = false;
};

}  // namespace plumbline::audit
