#include "analysis/collective/replay/segments.h"

#include <algorithm>

#include "base/dtype.h"

namespace plumbline::analysis {
namespace {

uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// The place of one offset: the part of a ring, and the distances to both ends of the part.
struct Place {
  uint64_t part = 0;    // running number; the segment is part mod rows
  uint64_t before = 0;  // elements since the part's beginning
  uint64_t after = 0;   // elements to the next part, at least 1
  int32_t channel = 0;
};

// Returns the place if parts of equal length follow one another.
Place EqualParts(uint64_t offset, uint64_t length) {
  return {offset / length, offset % length, length - offset % length, 0};
}

// Returns the place if a channel's elements go round the ring in loops of rows * chunk. The chunks
// of the last loop are shorter.
Place Loops(uint64_t offset, uint64_t length, uint64_t chunk, uint64_t rows) {
  const uint64_t loop = rows * chunk;
  const uint64_t start = offset / loop * loop;
  const uint64_t left = length - start;
  const uint64_t part = left < loop ? std::max<uint64_t>(1, CeilDiv(left, rows)) : chunk;
  return EqualParts(offset - start, part);
}

class MapBuilder {
 public:
  MapBuilder(const ReductionCase& c, int rows) : c_(c), rows_(static_cast<uint64_t>(rows)) {}

  template <typename PlaceOf>
  void Add(std::string name, bool channels, PlaceOf place_of) {
    SegmentMap map;
    map.name = std::move(name);
    const uint64_t near = 2 * rows_;
    for (const uint64_t offset : c_.offsets) {
      const Place p = place_of(offset);
      const uint64_t segment = p.part % rows_;
      int32_t other = -1;
      if (p.before < near && p.before <= p.after) {
        other = static_cast<int32_t>((segment + rows_ - 1) % rows_);
      } else if (p.after <= near) {
        other = static_cast<int32_t>((segment + 1) % rows_);
      }
      map.segment.push_back(static_cast<int32_t>(segment));
      map.other.push_back(other);
      if (channels) map.channel.push_back(p.channel);
    }
    for (const SegmentMap& known : maps_) {
      if (known.segment == map.segment && known.other == map.other && known.channel == map.channel)
        return;
    }
    maps_.push_back(std::move(map));
  }

  void AddChannels(uint64_t channels, uint64_t chunk) {
    const uint64_t count = c_.count;
    const uint64_t length = CeilDiv(count, channels);
    const uint64_t whole = std::max<uint64_t>(1, CeilDiv(length, rows_));
    const uint64_t each = chunk > 0 ? std::min(chunk, whole) : whole;
    Add("channels", channels > 1, [=, rows = rows_](uint64_t offset) {
      const uint64_t channel = offset / length;
      const uint64_t begin = channel * length;
      Place p = Loops(offset - begin, std::min(length, count - begin), each, rows);
      p.channel = static_cast<int32_t>(channel);
      return p;
    });
    if (channels == 1) return;
    Add("channels in turn", true, [=, rows = rows_](uint64_t offset) {
      const uint64_t turn = channels * rows * each;
      const uint64_t start = offset / turn * turn;
      const uint64_t left = count - start;
      const uint64_t part =
          left < turn ? std::max<uint64_t>(1, CeilDiv(left, channels * rows)) : each;
      Place p = EqualParts(offset - start, part);
      p.channel = static_cast<int32_t>(std::min(p.part / rows, channels - 1));
      return p;
    });
  }

  std::vector<SegmentMap> Done() { return std::move(maps_); }

 private:
  const ReductionCase& c_;
  uint64_t rows_;
  std::vector<SegmentMap> maps_;
};

}  // namespace

uint64_t GlooPart(uint64_t count, int ranks, uint64_t element_bytes) {
  constexpr uint64_t kMostBytes = 1 << 20;
  const auto n = static_cast<uint64_t>(ranks);
  const uint64_t bytes = count * element_bytes;
  const uint64_t least = std::max(CeilDiv(bytes, kMostBytes), 2 * n);
  const uint64_t segments = CeilDiv(least, n) * n;
  return segments / n * CeilDiv(CeilDiv(bytes, segments), element_bytes);
}

std::vector<SegmentMap> CandidateMaps(const ReductionCase& c, int rows) {
  MapBuilder builder(c, rows);
  if (c.count == 0 || rows < 2) return builder.Done();
  const uint64_t part = CeilDiv(c.count, static_cast<uint64_t>(rows));
  builder.Add("count/N", false, [=](uint64_t offset) { return EqualParts(offset, part); });
  const uint64_t gloo = GlooPart(c.count, rows, std::max<size_t>(1, DTypeSize(c.wire_dtype)));
  builder.Add("gloo", false, [=](uint64_t offset) { return EqualParts(offset, gloo); });
  const uint64_t channels = std::max<uint32_t>(1, c.channels);
  if (c.chunk > 0 || channels > 1) builder.AddChannels(channels, c.chunk);
  return builder.Done();
}

}  // namespace plumbline::analysis
