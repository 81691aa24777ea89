//! Conversions of the kernel's structures, by which librdmacm turns the answers of `rdma_cm` into arguments
//! of verbs.

use crate::header::{
    ib_user_path_rec, ib_uverbs_ah_attr, ib_uverbs_qp_attr, ibv_ah_attr, ibv_gid, ibv_qp_attr,
    ibv_sa_path_rec,
};

/// Copies fields that have the same names in both structures, converted to the destination's types.
macro_rules! copy_fields {
    ($from:expr => $to:expr; $($field:ident)*) => {
        #[allow(clippy::cast_lossless, reason = "of some fields only the types differ, in sign or size")]
        {
            $($to.$field = $from.$field as _;)*
        }
    };
}

fn copy_path(from: &ib_uverbs_ah_attr, to: &mut ibv_ah_attr) {
    to.grh.dgid = ibv_gid { raw: from.grh.dgid };
    copy_fields!(from.grh => to.grh; flow_label sgid_index hop_limit traffic_class);
    copy_fields!(from => to; dlid sl src_path_bits static_rate is_global port_num);
}

/// Converts the attributes of an address handle.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_copy_ah_attr_from_kern(to: *mut ibv_ah_attr, from: *const ib_uverbs_ah_attr) {
    // SAFETY: librdmacm passes both structures.
    unsafe { copy_path(&*from, &mut *to) };
}

/// Converts the attributes of a queue pair, except its state, which the caller sets.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_copy_qp_attr_from_kern(to: *mut ibv_qp_attr, from: *const ib_uverbs_qp_attr) {
    // SAFETY: librdmacm passes both structures.
    let (to, from) = unsafe { (&mut *to, &*from) };
    copy_fields!(from => to; cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags);
    copy_fields!(from => to.cap; max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data);
    copy_fields!(from => to; pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic);
    copy_fields!(from => to; min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout);
    copy_path(&from.ah_attr, &mut to.ah_attr);
    copy_path(&from.alt_ah_attr, &mut to.alt_ah_attr);
}

/// Converts a path record for the program.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_copy_path_rec_from_kern(to: *mut ibv_sa_path_rec, from: *const ib_user_path_rec) {
    // SAFETY: librdmacm passes both structures.
    let (to, from) = unsafe { (&mut *to, &*from) };
    (to.dgid, to.sgid) = (ibv_gid { raw: from.dgid }, ibv_gid { raw: from.sgid });
    copy_fields!(from => to; dlid slid raw_traffic flow_label hop_limit traffic_class reversible numb_path pkey sl);
    copy_fields!(from => to; mtu_selector mtu rate_selector rate packet_life_time_selector packet_life_time preference);
}

/// Converts a program's path record.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_copy_path_rec_to_kern(to: *mut ib_user_path_rec, from: *const ibv_sa_path_rec) {
    // SAFETY: librdmacm passes both structures.
    let (to, from) = unsafe { (&mut *to, &*from) };
    (to.dgid, to.sgid) = (from.dgid.raw, from.sgid.raw);
    copy_fields!(from => to; dlid slid raw_traffic flow_label hop_limit traffic_class reversible numb_path pkey sl);
    copy_fields!(from => to; mtu_selector mtu rate_selector rate packet_life_time_selector packet_life_time preference);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::zeroed;

    #[test]
    fn the_attributes_of_a_queue_pair_keep_their_values() {
        let mut from: ib_uverbs_qp_attr = zeroed();
        (from.qp_state, from.path_mtu, from.rq_psn, from.dest_qp_num) = (2, 3, 0x12_3456, 0x78_9ABC);
        (from.ah_attr.grh.dgid[15], from.ah_attr.is_global, from.ah_attr.port_num) = (7, 1, 1);
        (from.max_dest_rd_atomic, from.min_rnr_timer, from.timeout, from.rnr_retry) = (16, 12, 14, 7);
        let mut to: ibv_qp_attr = zeroed();
        to.qp_state = 6;
        // SAFETY: both are structures of this function.
        unsafe { ibv_copy_qp_attr_from_kern(&raw mut to, &raw const from) };
        assert_eq!((to.qp_state, to.path_mtu, to.rq_psn, to.dest_qp_num), (6, 3, 0x12_3456, 0x78_9ABC));
        let path = to.ah_attr;
        assert_eq!((path.grh.dgid.raw[15], path.is_global, path.port_num), (7, 1, 1));
        assert_eq!((to.max_dest_rd_atomic, to.min_rnr_timer, to.timeout, to.rnr_retry), (16, 12, 14, 7));
    }

    #[test]
    fn a_path_record_survives_the_way_there_and_back() {
        let mut from: ib_user_path_rec = zeroed();
        (from.dgid[0], from.sgid[1], from.pkey, from.mtu, from.hop_limit) = (1, 2, 0xFFFF, 5, 64);
        (from.reversible, from.packet_life_time, from.preference) = (1, 18, 3);
        let mut record: ibv_sa_path_rec = zeroed();
        let mut back: ib_user_path_rec = zeroed();
        // SAFETY: all are structures of this function.
        unsafe {
            ibv_copy_path_rec_from_kern(&raw mut record, &raw const from);
            ibv_copy_path_rec_to_kern(&raw mut back, &raw const record);
        }
        let fields = |r: &ib_user_path_rec| {
            (r.dgid, r.sgid, r.pkey, r.mtu, r.hop_limit, r.reversible, r.packet_life_time, r.preference)
        };
        assert_eq!(fields(&back), fields(&from));
    }
}
