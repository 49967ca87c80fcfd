// The library from C++: contexts in unique_ptr, errors as exceptions.
//
//   c++ -std=c++11 wrapper.cpp -o wrapper $(pkg-config --cflags --libs narrows)
#include <narrows.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace narrows {

inline std::size_t check(std::size_t result) {
    if (narrows_is_error(result))
        throw std::runtime_error(narrows_error_name(result));
    return result;
}

class Compressor {
public:
    Compressor() : context_(narrows_cctx_create(), narrows_cctx_free) {}

    Compressor &set(int parameter, int value) {
        check(narrows_cctx_set_parameter(context_.get(), parameter, value));
        return *this;
    }

    std::vector<char> operator()(const std::string &content) {
        std::vector<char> packed(check(narrows_compress_bound(content.size())));
        packed.resize(check(narrows_compress2(context_.get(), packed.data(), packed.size(),
                                              content.data(), content.size())));
        return packed;
    }

private:
    std::unique_ptr<narrows_cctx, std::size_t (*)(narrows_cctx *)> context_;
};

inline std::string decompress(const std::vector<char> &packed, std::uint64_t most) {
    std::uint64_t size;
    check(narrows_content_size(packed.data(), packed.size(), &size));
    if (size > most)
        throw std::length_error("more content than is wanted");
    std::string content(size, '\0');
    check(narrows_decompress(&content[0], content.size(), packed.data(), packed.size()));
    return content;
}

}  // namespace narrows

int main() {
    std::string content;
    for (int i = 0; i < 10000; ++i)
        content += "line " + std::to_string(i % 100) + "\n";

    narrows::Compressor compress;
    compress.set(NARROWS_PARAMETER_LEVEL, 6).set(NARROWS_PARAMETER_THREADS, 1);
    const std::vector<char> packed = compress(content);
    std::cout << (packed.size() * 10 < content.size() ? "packed" : "not packed") << ", "
              << (narrows::decompress(packed, 1 << 20) == content ? "the same again" : "different") << "\n";
    try {
        compress.set(NARROWS_PARAMETER_LEVEL, 99);
    } catch (const std::runtime_error &error) {
        std::cout << error.what() << "\n";
    }
}
