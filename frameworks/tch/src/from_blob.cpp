// A C function around torch::from_blob with a deleter, which tch does not have.

#include <ATen/ops/from_blob.h>

#include <cstring>
#include <exception>
#include <memory>

// Creates a tensor over `data`. It calls `drop(owner)` once: when the last tensor that uses the memory is dropped, or if
// there is an error. In case of an error, it returns null and writes a message to `message`, which has `size` bytes.
extern "C" at::Tensor *slotline_tch_from_blob(void *data, const int64_t *dims, size_t ndims, int8_t scalar_type,
                                              void (*drop)(void *), void *owner, char *message, size_t size) {
    try {
        std::shared_ptr<void> kept(owner, drop);
        return new at::Tensor(at::from_blob(
            data, at::IntArrayRef(dims, ndims), [kept](void *) {}, at::TensorOptions().dtype(at::ScalarType(scalar_type))));
    } catch (const std::exception &error) {
        std::strncpy(message, error.what(), size - 1);
    } catch (...) {
        std::strncpy(message, "an unknown exception of libtorch", size - 1);
    }
    return nullptr;
}
