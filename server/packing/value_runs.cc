#include "server/packing/value_runs.h"

#include <cstring>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::server {
namespace {

enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

constexpr uint64_t TagOf(int field, WireType type) {
  return (static_cast<uint64_t>(field) << 3) | type;
}

constexpr uint64_t kSeries = TagOf(v1::Batch::kSeriesFieldNumber, kLength);
constexpr uint64_t kSet = TagOf(v1::SeriesRows::kSetFieldNumber, kFixed64);
constexpr uint64_t kSources = TagOf(v1::SeriesRows::kSourceFieldNumber, kLength);
constexpr uint64_t kSource = TagOf(v1::SeriesRows::kSourceFieldNumber, kVarint);
constexpr uint64_t kSteps = TagOf(v1::SeriesRows::kStepFieldNumber, kLength);
constexpr uint64_t kStep = TagOf(v1::SeriesRows::kStepFieldNumber, kVarint);
constexpr uint64_t kValues = TagOf(v1::SeriesRows::kValueFieldNumber, kLength);

constexpr uint64_t kLongest = uint64_t{1} << 31;  // of any field of a batch

// Reads a batch from its start. Positions are those in the batch with its values.
class Walk {
 public:
  Walk(std::string_view bytes, bool cut, std::vector<ValueRun>* runs)
      : bytes_(bytes), cut_(cut), runs_(runs) {}

  bool Batch() {
    while (next_ < bytes_.size()) {
      uint64_t tag = 0, size = 0;
      if (!Varint(&tag)) return false;
      if (tag != kSeries) {
        if (!Pass(tag)) return false;
      } else if (!Varint(&size) || size > kLongest || !Rows(at() + size)) {
        return false;
      }
    }
    return true;
  }

  size_t at() const { return next_ + gone_; }

 private:
  bool Rows(size_t end) {
    const size_t first = runs_->size();
    ValueRun facts;
    while (at() < end) {
      uint64_t tag = 0;
      if (!Varint(&tag)) return false;
      if (!Field(tag, end, &facts)) return false;
    }
    if (at() != end) return false;
    const bool alone = runs_->size() == first + 1;
    for (size_t i = first; i < runs_->size(); ++i) {
      ValueRun& run = (*runs_)[i];
      run.set = facts.set;
      run.rows = alone ? facts.rows : 0;
      if (alone) run.sources = std::move(facts.sources);
    }
    return true;
  }

  bool Field(uint64_t tag, size_t end, ValueRun* facts) {
    uint64_t number = 0;
    switch (tag) {
      case kSet:
        if (bytes_.size() - next_ < sizeof(facts->set)) return false;
        std::memcpy(&facts->set, bytes_.data() + next_, sizeof(facts->set));
        next_ += sizeof(facts->set);
        return true;
      case kSource:
        if (!Varint(&number)) return false;
        facts->sources.push_back(static_cast<uint32_t>(number));
        return true;
      case kStep:
        ++facts->rows;
        return Varint(&number);
      case kSources:
      case kSteps:
        return Numbers(tag, facts);
      case kValues:
        return Values(end);
      default:
        return Pass(tag);
    }
  }

  bool Numbers(uint64_t tag, ValueRun* facts) {
    uint64_t size = 0, number = 0;
    if (!Varint(&size) || size > bytes_.size() - next_) return false;
    const size_t end = next_ + size;
    while (next_ < end) {
      if (!Varint(&number)) return false;
      if (tag == kSources) {
        facts->sources.push_back(static_cast<uint32_t>(number));
      } else {
        ++facts->rows;
      }
    }
    return next_ == end;
  }

  bool Values(size_t end) {
    uint64_t size = 0;
    if (!Varint(&size) || size > kLongest || size % sizeof(double) != 0) return false;
    if (at() > end || size > end - at()) return false;
    if (size == 0) return true;
    runs_->emplace_back();
    runs_->back().at = at();
    runs_->back().count = size / sizeof(double);
    if (!cut_) return Skip(size);
    gone_ += size;
    return true;
  }

  bool Pass(uint64_t tag) {
    uint64_t number = 0;
    switch (tag & 7) {
      case kVarint:
        return Varint(&number);
      case kFixed64:
        return Skip(8);
      case kFixed32:
        return Skip(4);
      case kLength:
        return Varint(&number) && Skip(number);
      default:
        return false;  // groups: no writer uses them
    }
  }

  bool Skip(uint64_t size) {
    if (size > bytes_.size() - next_) return false;
    next_ += size;
    return true;
  }

  bool Varint(uint64_t* out) {
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (next_ >= bytes_.size()) return false;
      const auto byte = static_cast<uint8_t>(bytes_[next_++]);
      *out |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  const std::string_view bytes_;
  const bool cut_;
  std::vector<ValueRun>* const runs_;
  size_t next_ = 0;  // in bytes_
  size_t gone_ = 0;  // bytes of earlier values that are missing in bytes_
};

}  // namespace

bool FindValueRuns(std::string_view bytes, bool cut, std::vector<ValueRun>* runs, size_t* size) {
  runs->clear();
  Walk walk(bytes, cut, runs);
  const bool whole = walk.Batch();
  *size = walk.at();
  return whole;
}

}  // namespace plumbline::server
