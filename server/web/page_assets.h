// The page's files, which dashboards/web/page.cmake compiled into this program.
#pragma once

#include <span>
#include <string_view>

namespace plumbline::server {

struct PageAsset {
  std::string_view path;  // "/" is the document
  std::string_view type;
  std::string_view tag;  // a hash of its bytes
  std::string_view bytes;
  std::string_view gzip;  // the same, compressed
};

// Returns files in static storage. Empty if this plumbd was built without its page.
std::span<const PageAsset> PageAssets();
// Returns why it was built without it; empty if it was not.
std::string_view PageAbsentWhy();

}  // namespace plumbline::server
