// The page's files, as dashboards/web/page.cmake put them into this program.
#pragma once

#include <span>
#include <string_view>

namespace plumbline::server {

struct PageAsset {
  std::string_view path;  // "/" is the document
  std::string_view type;
  std::string_view tag;  // of its bytes: others have another
  std::string_view bytes;
  std::string_view gzip;  // the same, packed
};

// Static storage. Empty: this plumbd was built without its page.
std::span<const PageAsset> PageAssets();
// Why it was; empty: it was not.
std::string_view PageAbsentWhy();

}  // namespace plumbline::server
