#include "base/archive.h"

#include <cfloat>

#include "absl/strings/str_cat.h"

namespace plumbline {

// The bytes of a long double that the processor uses. It is the only type whose bytes depend on the
// machine.
constexpr size_t kLongDoubleBytes = LDBL_MANT_DIG == 64 ? 10 : sizeof(long double);

void Archive::Fail(std::string_view expected) {
  if (!ok()) return;
  error_ = absl::StrCat("at byte ", at_, path_.empty() ? "" : " of ", path_, ": expected ",
                        absl::string_view(expected.data(), expected.size()));
  limit_ = at_;
}

bool Archive::Has(size_t size) {
  if (!ok()) return false;
  if (size <= left()) return true;
  Fail(absl::StrCat(size, " more bytes, found ", left()));
  return false;
}

uint64_t Archive::Count(uint64_t size, size_t least) {
  Bytes(&size, sizeof(size));
  if (!reading_) return size;
  if (!ok()) return 0;
  if (size <= left() / least) return size;
  Fail(absl::StrCat("a count of at most ", left() / least, ", found ", size));
  return 0;
}

void Archive::Bool(bool& value) {
  uint8_t byte = value ? 1 : 0;
  Bytes(&byte, 1);
  if (!reading_ || !ok()) return;
  if (byte > 1) return Fail(absl::StrCat("0 or 1, found ", byte));
  value = byte == 1;
}

void Archive::LongDouble(long double& value) { Bytes(&value, kLongDoubleBytes); }

std::string_view Archive::Text(std::string_view text) {
  const uint64_t size = Count(text.size(), 1);
  if (counting_) counted_ += text.size();
  if (!reading_ && !counting_) out_.append(text);
  if (!reading_) return {};
  if (!ok()) return {};
  at_ += size;
  return in_.substr(at_ - size, size);
}

void Archive::Value(std::string& value) {
  const std::string_view read = Text(value);
  if (reading_ && ok()) value.assign(read);
}

void Archive::Value(std::vector<bool>& value) {
  uint64_t size = value.size();
  Bytes(&size, sizeof(size));
  if (reading_ && ok() && size / 8 > left()) Fail(absl::StrCat(size, " bits"));
  if (!ok()) return;
  if (reading_) value.assign(size, false);
  for (uint64_t i = 0; i < size && ok(); i += 8) {
    uint8_t byte = 0;
    for (uint64_t j = i; j < size && j < i + 8; ++j) byte |= value[j] ? 1 << (j - i) : 0;
    Bytes(&byte, 1);
    if (reading_ && size - i < 8 && byte >> (size - i) != 0) Fail("zeros after the last bit");
    for (uint64_t j = i; reading_ && j < size && j < i + 8; ++j) value[j] = (byte >> (j - i)) & 1;
  }
}

uint64_t Archive::Place(const void* object, const void* type) {
  if (object == nullptr) return 0;
  return places_.try_emplace({object, type}, places_.size() + 1).first->second;
}

uint32_t Archive::Version(uint32_t current, uint32_t oldest) {
  uint32_t version = current;
  Value(version);
  if (!ok()) return current;
  if (version > current || version < oldest)
    Fail(absl::StrCat("version ", oldest, " to ", current, ", found ", version));
  return version;
}

Archive::Frame Archive::BeginSection(std::string_view name) {
  Frame outer{0, limit_, path_.size()};
  const std::string_view found = Text(name);
  if (reading_ && ok() && found != name) {
    Fail(absl::StrCat("'", absl::string_view(name.data(), name.size()), "', found another"));
  }
  absl::StrAppend(&path_, path_.empty() ? "" : ", ", absl::string_view(name.data(), name.size()));
  outer.begin = out_.size();
  const uint64_t size = Count(0, 1);
  if (reading_ && ok()) limit_ = at_ + size;
  return outer;
}

void Archive::EndSection(const Frame& outer) {
  if (!reading_) {
    if (counting_) return path_.resize(outer.name);
    const uint64_t size = out_.size() - outer.begin - sizeof(uint64_t);
    std::memcpy(&out_[outer.begin], &size, sizeof(size));
    if (sink_ && outer.name == 0 && out_.size() >= piece_) Drain();
  } else if (ok()) {
    if (at_ < limit_) Fail(absl::StrCat("the end, found ", left(), " bytes more"));
    if (ok()) limit_ = outer.limit;
  }
  path_.resize(outer.name);
}

void Archive::Drain() {
  if (!sink_ || out_.empty()) return;
  sink_(out_);
  handed_on_ += out_.size();
  out_.clear();
}

void Archive::End() {
  if (reading_ && ok() && left() > 0) Fail(absl::StrCat("the end, found ", left(), " bytes more"));
}

}  // namespace plumbline
