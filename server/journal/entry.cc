#include "server/journal/entry.h"

namespace plumbline::server {
namespace {

std::string_view View(const grpc::Slice& slice) {
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

}  // namespace

WireBytes::WireBytes(const grpc::ByteBuffer& buffer, size_t skip) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return;
  for (grpc::Slice& slice : slices) {
    if (skip >= slice.size()) {
      skip -= slice.size();
      continue;
    }
    slices_.push_back(skip == 0 ? std::move(slice) : slice.sub(skip, slice.size()));
    skip = 0;
  }
}

size_t WireBytes::size() const {
  size_t total = 0;
  for (const grpc::Slice& slice : slices_) total += slice.size();
  return total;
}

void WireBytes::AddTo(std::vector<std::string_view>* parts) const {
  for (const grpc::Slice& slice : slices_) parts->push_back(View(slice));
}

}  // namespace plumbline::server
