#include "server/packing/value_columns.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace plumbline::server {
namespace {

// If a group has fewer rows, its columns are too short to be written separately.
constexpr size_t kFewRows = 64;

}  // namespace

void ValueColumns::Add(const ValueRun& run, uint64_t stream, size_t batch_at) {
  const bool even = run.rows > 0 && run.count % run.rows == 0;
  const size_t rows = even ? run.rows : run.count;
  const size_t width = run.count / rows;
  std::vector<Row>& group = groups_[{even ? run.set : 0, width}];
  for (size_t i = 0; i < rows; ++i) {
    const uint32_t source = run.sources.size() == rows ? run.sources[i]
                            : run.sources.empty()      ? 0
                                                       : run.sources[0];
    group.push_back({stream, source, batch_at + run.at + i * width * sizeof(double)});
  }
}

std::vector<ValueColumns::Part> ValueColumns::Parts() {
  std::vector<Part> parts;
  for (auto& [key, rows] : groups_) {
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return std::tie(a.stream, a.source, a.at) < std::tie(b.stream, b.source, b.at);
    });
    const size_t width = key.second;
    const size_t at_once = rows.size() < kFewRows ? width : 1;
    for (size_t first = 0; first < width; first += at_once) {
      parts.push_back({rows, first, at_once});
    }
  }
  return parts;
}

void ValueColumns::Encode(PlaneCodec& codec, std::string_view whole, std::string* out) {
  for (const Part& part : Parts()) {
    cells_.resize(part.rows.size() * part.columns);
    double* cell = cells_.data();
    for (const Row& row : part.rows) {
      std::memcpy(cell, whole.data() + row.at + part.first * sizeof(double),
                  part.columns * sizeof(double));
      cell += part.columns;
    }
    const size_t at = out->size();
    out->append(sizeof(uint32_t), '\0');
    codec.Encode(cells_, part.columns, out);
    const auto size = static_cast<uint32_t>(out->size() - at - sizeof(uint32_t));
    std::memcpy(out->data() + at, &size, sizeof(size));
  }
}

bool ValueColumns::Decode(PlaneCodec& codec, std::string_view bytes, std::string* whole) {
  for (const Part& part : Parts()) {
    uint32_t size = 0;
    if (bytes.size() < sizeof(size)) return false;
    std::memcpy(&size, bytes.data(), sizeof(size));
    bytes.remove_prefix(sizeof(size));
    if (bytes.size() < size) return false;
    if (!codec.Decode(bytes.substr(0, size), part.rows.size() * part.columns, part.columns,
                      &cells_)) {
      return false;
    }
    bytes.remove_prefix(size);
    const double* cell = cells_.data();
    for (const Row& row : part.rows) {
      std::memcpy(whole->data() + row.at + part.first * sizeof(double), cell,
                  part.columns * sizeof(double));
      cell += part.columns;
    }
  }
  return bytes.empty();
}

}  // namespace plumbline::server
